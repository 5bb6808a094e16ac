//! Facts about channels.

use crate::fuzz::read;
use crate::{Answer, ReasoningForm, ToolTypes};
use serde_json::Value;

fn answer(text: &str) -> Answer {
    answer_of(text, &ToolTypes::default())
}

fn answer_of(text: &str, types: &ToolTypes) -> Answer {
    let form = Some(ReasoningForm::Harmony);
    let whole = read(form, None, types, [text]);
    let cut = read(form, None, types, text.split_inclusive(|_| true));
    assert_eq!(cut, whole);
    whole
}

#[test]
fn channels_hold_reasoning_calls_and_text() {
    let text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Four.<|return|>";
    let answer = answer(text);
    assert_eq!([answer.reasoning.as_str(), &answer.text], ["Hm.", "Four."]);
}

#[test]
fn a_role_that_begins_a_message_is_no_text() {
    let said = "<|channel|>final<|message|>Four.<|end|>";
    for begun in ["", "assistant", "assistant<|chan", "assistant<|end|>"] {
        assert_eq!(answer(&format!("{said}<|start|>{begun}")).text, "Four.");
    }
    assert_eq!(answer("Four.<|start|>assistant").text, "Four.");
}

#[test]
fn what_goes_to_a_tool_that_the_request_has_is_a_call() {
    let said = "<|channel|>analysis to=python code<|message|>print(1)<|call|>";
    let own = ToolTypes::new([("python", &Value::Null)]);
    let called = answer_of(said, &own).calls;
    assert_eq!(
        (called[0].name.as_str(), called[0].arguments.as_str()),
        ("python", "print(1)")
    );
    let other = answer(said);
    assert_eq!(
        (other.reasoning.as_str(), other.calls.len()),
        ("print(1)", 0)
    );
    let named = said.replace("to=python", "to=functions.python");
    assert_eq!(answer(&named).calls.len(), 1);
}
