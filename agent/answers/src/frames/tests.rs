//! What is framed is read again as it was.

use super::*;
use crate::fuzz::read;
use crate::{Call, ToolTypes};

#[test]
fn framed_calls_are_read_as_calls() {
    let mut framed = 0;
    for form in ToolForm::ALL {
        let Some(frame) = form.frame() else { continue };
        framed += 1;
        let call = |name: &str, arguments: &str| {
            let (begin, middle) = (frame.before_name, frame.before_arguments);
            format!("{begin}{name}{middle}{arguments}{}", frame.end)
        };
        let mut text = format!("{}{}", frame.open, call("f", "{\"x\": [\"}\"]}"));
        let mut names = vec!["f"];
        if let Some(between) = frame.between {
            text.push_str(&format!("{between}{}", call("g", "{}")));
            names.push("g");
        }
        text.push_str(frame.close);
        let answer = read(None, Some(form), &ToolTypes::default(), [text.as_str()]);
        let found: Vec<&str> = answer.calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(found, names, "{form}: {text}");
        let Call { arguments, .. } = &answer.calls[0];
        assert_eq!(arguments, "{\"x\": [\"}\"]}", "{form}");
        assert_eq!(answer.text, "", "{form}");
    }
    assert_eq!(framed, 8);
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
