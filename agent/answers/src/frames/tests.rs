//! What is framed is read again as it was.

use super::*;
use crate::fuzz::read;
use crate::{Call, ToolTypes};

/// `x` as `frame` writes it, whose value is a list of one text.
fn arguments(frame: &CallFrame) -> String {
    let value = "[\"}\"]";
    match frame.arguments {
        ArgumentsFrame::Json => format!("{{\"x\": {value}}}"),
        ArgumentsFrame::Python => format!("x={value}"),
        ArgumentsFrame::Keyed(KeyedFrame {
            before_key,
            before_value,
            end,
            ..
        }) => format!("{before_key}x{before_value}{value}{end}"),
    }
}

#[test]
fn framed_calls_are_read_as_calls() {
    let types = serde_json::json!({"properties": {"x": {"type": "array"}}});
    let types = ToolTypes::new([("f", &types)]);
    for form in ToolForm::ALL {
        let frame = form.frame();
        let none = match frame.arguments {
            ArgumentsFrame::Json => "{}",
            ArgumentsFrame::Python | ArgumentsFrame::Keyed(_) => "",
        };
        let call = |name: &str, arguments: &str| {
            let (begin, middle) = (frame.before_name, frame.before_arguments);
            let number = frame.behind_number.map(|behind| format!("7{behind}"));
            let number = number.unwrap_or_default();
            format!("{begin}{name}{middle}{number}{arguments}{}", frame.end)
        };
        let mut text = format!("{}{}", frame.open, call("f", &arguments(&frame)));
        let mut names = vec!["f"];
        if let Some(between) = frame.between {
            text.push_str(&format!("{between}{}", call("g", none)));
            names.push("g");
        }
        text.push_str(frame.close);
        let answer = read(None, Some(form), &types, [text.as_str()]);
        let found: Vec<&str> = answer.calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(found, names, "{form}: {text}");
        let Call { arguments, .. } = &answer.calls[0];
        let arguments: serde_json::Value = serde_json::from_str(arguments).unwrap();
        assert_eq!(arguments, serde_json::json!({"x": ["}"]}), "{form}");
        assert_eq!(answer.text, "", "{form}");
    }
}

#[test]
fn a_mark_begins_every_call() {
    for form in ToolForm::ALL {
        let frame = form.frame();
        if let AmongText::Mark(mark) = frame.among_text {
            assert!(frame.before_name.contains(mark), "{form}");
        }
    }
    assert!(ToolForm::Pythonic.can_name("a.b_1") && ToolForm::Glm45.can_name("a-b"));
    assert!(!ToolForm::Pythonic.can_name("a-b") && !ToolForm::Pythonic.can_name("1a"));
}

#[test]
fn messages_of_text_are_read_as_no_calls() {
    let frame = ToolForm::Harmony.frame();
    let AmongText::Messages(MessageFrame { begins, between }) = frame.among_text else {
        panic!("it has channels");
    };
    let texts = begins.iter().map(|begin| format!("{begin}So.{between}"));
    let texts: String = texts.collect();
    let (begin, middle) = (frame.before_name, frame.before_arguments);
    let text = format!("{texts}{begin}f{middle}{{}}");
    let answer = read(
        None,
        Some(ToolForm::Harmony),
        &ToolTypes::default(),
        [text.as_str()],
    );
    assert_eq!([answer.reasoning.as_str(), &answer.text], ["So.", "So.So."]);
    assert_eq!(answer.calls.len(), 1);
}

#[test]
fn a_thought_comes_where_the_prompt_leaves_room_for_one() {
    let frame = |prompt| ReasoningForm::Qwen3.frame(prompt);
    let inside = frame(Prompt::Opened("<think>\n")).unwrap();
    assert_eq!((inside.open, inside.close), (None, "</think>"));
    assert_eq!(
        frame(Prompt::Opened("<|a|>")).unwrap().open,
        Some("<think>")
    );
    assert_eq!(frame(Prompt::Opened("<think></think>")), None);
    assert_eq!(frame(Prompt::Continued("So")), None);
    let forced = ReasoningForm::DeepseekR1.frame(Prompt::Opened("<|a|>"));
    assert_eq!(forced.unwrap().open, None);
    let channels = ReasoningForm::Harmony
        .frame(Prompt::Opened("<|start|>assistant"))
        .unwrap();
    let text = format!(
        "{}Hm{}{}So.",
        channels.open.unwrap(),
        channels.close,
        channels.lead
    );
    let answer = read(
        Some(ReasoningForm::Harmony),
        None,
        &ToolTypes::default(),
        [text.as_str()],
    );
    assert_eq!([answer.reasoning.as_str(), &answer.text], ["Hm", "So."]);
}
