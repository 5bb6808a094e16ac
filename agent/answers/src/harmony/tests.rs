//! Facts about channels.

use crate::fuzz::read;
use crate::{Answer, ReasoningForm, ToolTypes};

fn answer(text: &str) -> Answer {
    let types = ToolTypes::default();
    let form = Some(ReasoningForm::Harmony);
    let whole = read(form, None, &types, [text]);
    let cut = read(form, None, &types, text.split_inclusive(|_| true));
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
