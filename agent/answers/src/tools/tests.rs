//! Facts about calls, in each form.

use super::*;
use crate::fuzz::read;
use crate::{Answer, Call, ReasoningForm};
use proptest::prelude::*;
use serde_json::{Value, json};

pub(crate) fn types() -> ToolTypes {
    let weather = json!({"properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"},
        "note": {"type": ["string", "null"]}, "unit": {"enum": ["C", "F"]}, "at": {"type": "object"},
    }});
    ToolTypes::new([("weather", &weather)])
}

pub(crate) fn answer(form: ToolForm, text: &str) -> Answer {
    let types = types();
    let whole = read(None, Some(form), &types, [text]);
    let cut = read(None, Some(form), &types, text.split_inclusive(|_| true));
    assert_eq!(cut, whole, "{form}: {text}");
    whole
}

pub(crate) fn call(name: &str, arguments: &str) -> Call {
    Call {
        name: name.to_owned(),
        id: None,
        arguments: arguments.to_owned(),
    }
}

#[track_caller]
fn assert_answer(form: ToolForm, written: &str, text: &str, calls: &[Call]) {
    let answer = answer(form, written);
    assert_eq!(answer.text, text, "{form}");
    assert_eq!(answer.calls, calls, "{form}");
}

/// One call and two, with text before them, as each family writes them.
fn written(form: ToolForm) -> [&'static str; 2] {
    match form {
        ToolForm::Qwen25 | ToolForm::Hermes => [
            "Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
            "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n<tool_call>\n\
             {\"name\": \"time\", \"arguments\": {}}\n</tool_call>",
        ],
        ToolForm::Qwen3Coder => [
            "Let me see.\n<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n\
             </tool_call>",
            "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>\n\
             <tool_call>\n<function=time>\n</function>\n</tool_call>",
        ],
        ToolForm::Llama3 => [
            "Let me see.\n<|python_tag|>{\"name\": \"weather\", \"parameters\": {\"city\": \"Paris\"}}",
            "{\"name\": \"weather\", \"parameters\": {\"city\": \"Paris\"}}; {\"name\": \"time\", \"parameters\": {}}",
        ],
        ToolForm::Mistral => [
            "Let me see.[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}]",
            "[TOOL_CALLS]weather[ARGS]{\"city\": \"Paris\"}[TOOL_CALLS]time[ARGS]{}",
        ],
        ToolForm::DeepseekV3 => [
            "Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n\
             {\"city\": \"Paris\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Paris\"}\n\
             ```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>time\n```json\n{}\n```\
             <｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ],
        ToolForm::DeepseekV31 => [
            "Let me see.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Paris\"}\
             <｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Paris\"}<｜tool▁call▁end｜>\
             <｜tool▁call▁begin｜>time<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ],
        ToolForm::Glm45 => [
            "Let me see.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
            "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>\n\
             <tool_call>time</tool_call>",
        ],
        ToolForm::KimiK2 => [
            "Let me see.<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0\
             <|tool_call_argument_begin|>{\"city\": \"Paris\"}<|tool_call_end|><|tool_calls_section_end|>",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>\
             {\"city\": \"Paris\"}<|tool_call_end|><|tool_call_begin|>functions.time:1<|tool_call_argument_begin|>{}\
             <|tool_call_end|><|tool_calls_section_end|>",
        ],
        ToolForm::Pythonic => [
            "Let me see.\n[weather(city='Paris')]",
            "<|python_start|>[weather(city=\"Paris\"), time()]<|python_end|>",
        ],
        ToolForm::Harmony => [
            "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant<|channel|>commentary \
             to=functions.weather <|constrain|>json<|message|>{\"city\": \"Paris\"}<|call|>",
            "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{\"city\": \"Paris\"}<|call|>\
             <|start|>assistant to=functions.time<|channel|>commentary json<|message|>{}<|call|>",
        ],
    }
}

fn without_ids(answer: &mut Answer) {
    answer.calls.iter_mut().for_each(|call| call.id = None);
    for call in &mut answer.calls {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
        call.arguments = arguments.to_string();
    }
}

#[test]
fn every_form_has_a_call_and_two_of_them() {
    for form in ToolForm::ALL {
        let [one, two] = written(form);
        let mut answer_of_one = answer(form, one);
        without_ids(&mut answer_of_one);
        assert_eq!(answer_of_one.text, "Let me see.", "{form}");
        assert_eq!(
            answer_of_one.calls,
            [call("weather", "{\"city\":\"Paris\"}")],
            "{form}"
        );
        let mut answer_of_two = answer(form, two);
        without_ids(&mut answer_of_two);
        assert_eq!(answer_of_two.text, "", "{form}");
        let time = call("time", "{}");
        assert_eq!(
            answer_of_two.calls,
            [call("weather", "{\"city\":\"Paris\"}"), time],
            "{form}"
        );
    }
}

#[test]
fn text_without_a_call_stays_as_it_is() {
    for form in ToolForm::ALL {
        for text in [
            "",
            " ",
            "Four.\n\n",
            "a <b> [c] {d} `e` ``` f\n",
            "{\"city\": \"Paris\"}",
            "[1, 2]",
            "{",
            "[f",
            "<tool",
            " \n{\"name\"",
            "[a(b)] ",
            "x[",
            "[TOOL",
            "<｜tool▁cal",
        ] {
            assert_answer(form, text, text, &[]);
        }
    }
}

#[test]
fn what_is_no_call_behind_a_mark_is_text() {
    for text in [
        "<tool_call>soon</tool_call>",
        "a\n<tool_call>\n{\"city\": 1}",
        "<tool_call> {\"name\": 3}",
    ] {
        assert_answer(ToolForm::Hermes, text, text, &[]);
    }
    let text = "see <function=a b>c";
    assert_answer(ToolForm::Qwen3Coder, text, text, &[]);
    let text = "[TOOL_CALLS] none today";
    assert_answer(ToolForm::Mistral, text, text, &[]);
}

#[test]
fn white_space_behind_calls_is_the_texts_own() {
    let time = [call("time", "{}")];
    let text = "See.\n\n<|python_tag|>{\"name\": \"time\", \"parameters\": {}} ;\n\nThere.";
    assert_answer(ToolForm::Llama3, text, "See.\n\nThere.", &time);
    let text = "[TOOL_CALLS] [{\"name\": \"time\", \"arguments\": {}} ]\nThere.";
    assert_answer(ToolForm::Mistral, text, "\nThere.", &time);
    let text = "[TOOL_CALLS] [{\"name\": \"time\", \"arguments\": {}}]\n";
    assert_answer(ToolForm::Mistral, text, "", &time);
}

#[test]
fn arguments_come_as_they_are_written() {
    let text = "<tool_call>{\"arguments\": {\"a\": \"}</tool_call>\\\"\", \"b\": [1, {}]}, \"name\": \"f\"}</tool_call>";
    assert_answer(
        ToolForm::Hermes,
        text,
        "",
        &[call("f", "{\"a\": \"}</tool_call>\\\"\", \"b\": [1, {}]}")],
    );
    let text = "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>";
    assert_answer(ToolForm::Hermes, text, "", &[call("f", "{\"a\": 1}")]);
    for none in [
        "{\"name\": \"f\"}",
        "{\"name\": \"f\", \"arguments\": null}",
    ] {
        assert_answer(
            ToolForm::Hermes,
            &format!("<tool_call>{none}</tool_call>"),
            "",
            &[call("f", "{}")],
        );
    }
}

#[test]
fn a_call_that_is_cut_off_has_what_there_was() {
    let [one, _] = written(ToolForm::Hermes);
    let cut = &one[..one.find("ris").unwrap()];
    assert_answer(
        ToolForm::Hermes,
        cut,
        "Let me see.",
        &[call("weather", "{\"city\": \"Pa")],
    );
    let [one, _] = written(ToolForm::Qwen3Coder);
    let cut = &one[..one.find("ris").unwrap()];
    assert_answer(
        ToolForm::Qwen3Coder,
        cut,
        "Let me see.",
        &[call("weather", "{\"city\": \"Pa")],
    );
}

#[test]
fn pythons_literals_become_json() {
    let text = "[f(a='it\\'s', b=[1, 2.5, -3], c={'x': None, 'y': True}, d=(1,), e=1_000)]";
    let arguments =
        "{\"a\":\"it's\",\"b\":[1,2.5,-3],\"c\":{\"x\":null,\"y\":true},\"d\":[1],\"e\":1000}";
    assert_answer(ToolForm::Pythonic, text, "", &[call("f", arguments)]);
    let text =
        "[f(a=\"\\b\\f\\u000b\", b=[1e999, 123456789012345678901], c={1: 0, 'x': 1, 'x': 2})]";
    let arguments =
        "{\"a\":\"\\b\\f\\u000b\",\"b\":[1e999,123456789012345678901],\"c\":{\"1\":0,\"x\":2}}";
    assert_answer(ToolForm::Pythonic, text, "", &[call("f", arguments)]);
    let deep = format!("[f(a={}1{})]", "[".repeat(100), "]".repeat(100));
    assert_answer(ToolForm::Pythonic, &deep, &deep, &[]);
}

#[test]
fn ids_are_the_models_own() {
    let ids = |form, text: &str| -> Vec<_> {
        let calls = answer(form, text).calls.into_iter();
        calls.map(|call| (call.name, call.id)).collect()
    };
    let own = |name: &str, id: &str| (name.to_owned(), Some(id.to_owned()));
    let [_, two] = written(ToolForm::KimiK2);
    assert_eq!(
        ids(ToolForm::KimiK2, two),
        [
            own("weather", "functions.weather:0"),
            own("time", "functions.time:1")
        ]
    );
    assert_eq!(
        ids(ToolForm::Mistral, "[TOOL_CALLS]f[CALL_ID]Ab1[ARGS]{}"),
        [own("f", "Ab1")]
    );
    assert_eq!(
        ids(
            ToolForm::Mistral,
            "[TOOL_CALLS][{\"id\": \"Ab1\", \"name\": \"f\", \"arguments\": {}}]"
        ),
        [own("f", "Ab1")]
    );
}

#[test]
fn reasoning_comes_before_calls() {
    let text = "<think>\n<tool_call>{}\n</think>\n\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    let answer = read(
        Some(ReasoningForm::Qwen3),
        Some(ToolForm::Qwen25),
        &types(),
        [text],
    );
    assert_eq!(
        [answer.reasoning.as_str(), &answer.text],
        ["<tool_call>{}", ""]
    );
    assert_eq!(answer.calls, [call("f", "{}")]);
}

/// What answers are made of, in wild orders.
const PARTS: [&str; 30] = [
    "<tool_call>",
    "</tool_call>",
    "{\"name\": \"f\", ",
    "\"arguments\": ",
    "{\"a\": \"<\"}",
    "}",
    "\n",
    " ",
    "x",
    "<function=f>",
    "<parameter=a>",
    "</parameter>",
    "</function>",
    "<arg_key>a</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<|python_tag|>",
    ";",
    "[TOOL_CALLS]",
    "[",
    "]",
    "f[ARGS]",
    "f(a='[', b=1)",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "```json\n",
    "```",
    "<|channel|>analysis<|message|>",
    "<|end|>",
    "</think>",
];

proptest! {
    #[test]
    fn however_an_answer_is_cut_it_is_the_same(
        form in prop::sample::select(ToolForm::ALL.to_vec()),
        reasoning in prop::option::of(prop::sample::select(ReasoningForm::ALL.to_vec())),
        parts in prop::collection::vec(prop::sample::select(PARTS.to_vec()), 0..24),
        cuts in prop::collection::vec(1..9usize, 1..40),
    ) {
        let text: String = parts.concat();
        let whole = read(reasoning, Some(form), &types(), [text.as_str()]);
        let mut pieces = Vec::new();
        let mut rest = text.as_str();
        for cut in cuts.iter().cycle().take(text.len() + 1) {
            let at = rest.char_indices().map(|(at, _)| at).nth(*cut).unwrap_or(rest.len());
            let (piece, after) = rest.split_at(at);
            pieces.push(piece);
            rest = after;
        }
        prop_assert_eq!(read(reasoning, Some(form), &types(), pieces), whole);
    }
}

#[test]
fn a_chat_template_is_written_for_a_form() {
    let form = ToolForm::of_template;
    let hermes = r#"{"name": <function-name>}</tool_call> {{ '<tool_call>' }}"#;
    assert_eq!(form(hermes), Some(ToolForm::Hermes));
    let coder = "<tool_call>\n<function=example>\n<parameter=a>";
    assert_eq!(form(coder), Some(ToolForm::Qwen3Coder));
    let glm = "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>";
    assert_eq!(form(glm), Some(ToolForm::Glm45));
    let fenced = "<｜tool▁call▁begin｜>' + type + '<｜tool▁sep｜>' + name + '\\n```json";
    assert_eq!(form(fenced), Some(ToolForm::DeepseekV3));
    assert_eq!(
        form("<｜tool▁call▁begin｜>' + name"),
        Some(ToolForm::DeepseekV31)
    );
    assert_eq!(form("{{ messages[0].content }}"), None);
}

#[test]
fn a_call_without_an_id_gets_one() {
    assert_eq!(ToolForm::Hermes.call_id(1), "call_000000000000000000000000");
    let mistral = ToolForm::Mistral.call_id(u128::MAX);
    assert_eq!(mistral, "fffffffff");
}
