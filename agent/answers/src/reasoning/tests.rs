//! Facts about reasoning.

use super::*;
use crate::Answer;
use crate::fuzz::read;
use crate::tools::ToolTypes;

fn answer(form: ReasoningForm, text: &str) -> Answer {
    let types = ToolTypes::default();
    let whole = read(Some(form), None, &types, [text]);
    let cut = read(Some(form), None, &types, text.split_inclusive(|_| true));
    assert_eq!(cut, whole);
    whole
}

#[track_caller]
fn assert_parts(form: ReasoningForm, text: &str, [reasoning, rest]: [&str; 2]) {
    let answer = answer(form, text);
    assert_eq!([answer.reasoning.as_str(), &answer.text], [reasoning, rest]);
}

#[test]
fn reasoning_ends_at_its_mark() {
    for form in [
        ReasoningForm::Qwen3,
        ReasoningForm::DeepseekR1,
        ReasoningForm::Glm45,
    ] {
        assert_parts(
            form,
            "<think>\nTwo and two.\n</think>\n\nFour. ",
            ["Two and two.", "Four. "],
        );
    }
    assert_parts(ReasoningForm::Kimi, "◁think▷a◁/think▷b", ["a", "b"]);
    assert_parts(
        ReasoningForm::Mistral,
        "[THINK]a < b[/THINK]c",
        ["a < b", "c"],
    );
}

#[test]
fn an_answer_without_a_mark_is_as_its_form_begins() {
    assert_parts(ReasoningForm::Qwen3, " Four.\n", ["", " Four.\n"]);
    assert_parts(ReasoningForm::Qwen3, "<thin air", ["", "<thin air"]);
    assert_parts(
        ReasoningForm::DeepseekR1,
        "Two and </thin",
        ["Two and </thin", ""],
    );
    assert_parts(
        ReasoningForm::DeepseekR1,
        "Two.\n</think>Four.",
        ["Two.", "Four."],
    );
    assert_parts(ReasoningForm::Qwen3, "<think></think>Four.", ["", "Four."]);
    assert_parts(ReasoningForm::Qwen3, "", ["", ""]);
}

#[test]
fn names_are_read_and_unknown_ones_refused() {
    for form in ReasoningForm::ALL {
        assert_eq!(form.name().parse::<ReasoningForm>().unwrap(), form);
    }
    let error = "r1".parse::<ReasoningForm>().unwrap_err().to_string();
    assert_eq!(
        error,
        "`r1` is no reasoning parser; there are deepseek-r1, qwen3, qwen3-thinking, glm45, kimi, kimi_k2, mistral, gpt-oss"
    );
}
