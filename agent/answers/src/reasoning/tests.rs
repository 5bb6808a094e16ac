//! Facts about reasoning.

use super::*;
use crate::fuzz::read;
use crate::types::ToolTypes;
use crate::{Answer, AnswerReader};

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

/// Reasoning and the rest of an answer behind a prompt.
fn behind(form: ReasoningForm, prompt: Prompt<'_>, text: &str) -> [String; 2] {
    let mut reader = AnswerReader::new(Some(form), None, ToolTypes::default(), prompt);
    let mut pieces = Vec::new();
    for part in text.split_inclusive(|_| true) {
        reader.push(part, &mut pieces);
    }
    reader.end(&mut pieces);
    let answer: Answer = pieces.into_iter().collect();
    [answer.reasoning, answer.text]
}

#[test]
fn the_end_of_a_prompt_says_where_an_answer_begins() {
    let opened = |prompt, text| behind(ReasoningForm::Qwen3, Prompt::Opened(prompt), text);
    assert_eq!(
        opened("<|a|>\n<think>\n", "Hm.</think>\nYes"),
        ["Hm.", "Yes"]
    );
    assert_eq!(opened("<|a|><think>", "Hm"), ["Hm", ""]);
    let off = "<|a|>\n<think>\n\n</think>\n\n";
    assert_eq!(opened(off, "A <think> tag"), ["", "A <think> tag"]);
    // What a user wrote is not the template's.
    assert_eq!(opened("<|u|>Why <think>?<|a|>", "So."), ["", "So."]);
    let earlier = "<|a|><think>x</think>y<|u|>z<|a|>";
    assert_eq!(opened(earlier, "<think>Hm</think>So."), ["Hm", "So."]);
    let forced = behind(ReasoningForm::DeepseekR1, Prompt::Opened(off), "Yes.");
    assert_eq!(
        forced,
        ["", "Yes."],
        "the prompt is surer than the form's name"
    );
}

#[test]
fn an_answer_that_continues_a_message_goes_on_in_its_part() {
    let continued = |message, text| behind(ReasoningForm::Qwen3, Prompt::Continued(message), text);
    assert_eq!(
        continued("<think>\nOne", " two</think>\n\nSo."),
        [" two", "So."]
    );
    assert_eq!(continued("<think>x</think>\n\nOne", " two"), ["", " two"]);
    assert_eq!(continued("One", " <think> two"), ["", " <think> two"]);
}

#[test]
fn a_message_that_channels_have_begun_goes_on() {
    let form = ReasoningForm::Harmony;
    let opened = |prompt, text| behind(form, Prompt::Opened(prompt), text);
    let answer =
        "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>So.";
    assert_eq!(opened("<|end|><|start|>assistant", answer), ["Hm", "So."]);
    assert_eq!(opened("<|start|>assistant", "So."), ["", "So."]);
    let begun = "<|start|>assistant<|channel|>analysis<|message|>One";
    assert_eq!(opened(begun, " two<|end|>"), [" two", ""]);
    let call = "<|start|>user<|channel|>x to=functions.f<|message|>{";
    assert_eq!(
        opened(call, "}"),
        ["", "}"],
        "a call without a beginning is none"
    );
    assert_eq!(behind(form, Prompt::Continued("One"), " two"), ["", " two"]);
}

#[test]
fn a_chat_template_is_written_for_a_form() {
    let form = ReasoningForm::of_template;
    assert_eq!(
        form("{{ content.split('</think>')[-1] }}"),
        Some(ReasoningForm::Qwen3)
    );
    assert_eq!(
        form("<|start|>{{ role }}<|channel|>final<|message|>"),
        Some(ReasoningForm::Harmony)
    );
    assert_eq!(form("[THINK]{{ x }}[/THINK]"), Some(ReasoningForm::Mistral));
    assert_eq!(form("{{ messages[0].content }}"), None);
}

#[test]
fn sglangs_names_are_taken() {
    assert_eq!(
        "deepseek-v3".parse::<ReasoningForm>().unwrap(),
        ReasoningForm::Qwen3
    );
    let unknown = "step9".parse::<ReasoningForm>().unwrap_err().to_string();
    assert!(
        unknown.starts_with("`step9` is no reasoning parser; there are deepseek-r1"),
        "{unknown}"
    );
}
