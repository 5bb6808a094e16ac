//! What of an answer a client is shown.

use super::*;
use crate::service::answer_forms::tests::mk_forms;
use pd_engine::engine::StopMatch;

const ANSWER: &str = "<think>\nFirst f.\n</think>\n\nSo: <tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n\
                      <tool_call>\n{\"name\": \"g\", \"arguments\": {\"x\": 2}}\n</tool_call>";

/// Of a model that writes as Qwen3 does.
pub(crate) fn mk_reader(calls_tools: bool) -> ChoiceReader {
    mk_reader_showing(ReasoningShown::Apart, calls_tools)
}

fn mk_reader_showing(shown: ReasoningShown, calls_tools: bool) -> ChoiceReader {
    let forms = mk_forms();
    let forms = forms.of_request(shown != ReasoningShown::InText, calls_tools);
    ChoiceReader::new(forms, None, shown, Prompt::Opened(""))
}

fn mk_delta(text: &str, ends: bool) -> Delta {
    Delta {
        texts: vec![text.to_owned()],
        token_ids: vec![1],
        finish: ends.then_some(Finish::Stop(StopMatch::Token(2))),
        ..Delta::default()
    }
}

/// The parts of an answer that arrives by characters, with those of one kind that follow each other as one; and its tokens of
/// reasoning.
fn read(mut reader: ChoiceReader, answer: &str) -> (Vec<ChatPart>, usize) {
    let mut parts = Vec::new();
    let mut reasoning_tokens = 0;
    let mut steps: Vec<&str> = answer.split_inclusive(|_| true).collect();
    steps.push("");
    for (step, text) in steps.iter().enumerate() {
        let read = reader.read(&mk_delta(text, step + 1 == steps.len()));
        reasoning_tokens += read.reasoning_tokens;
        for part in read.parts {
            join(&mut parts, part);
        }
    }
    (parts, reasoning_tokens)
}

fn join(parts: &mut Vec<ChatPart>, part: ChatPart) {
    use ChatPart::{Arguments, Reasoning, Text};
    match (parts.last_mut(), part) {
        (Some(Reasoning(last)), Reasoning(more)) | (Some(Text(last)), Text(more)) => {
            last.push_str(&more);
        }
        (Some(Arguments { more: last, .. }), Arguments { more, .. }) => last.push_str(&more),
        (_, part) => parts.push(part),
    }
}

fn call(index: usize, name: &str, arguments: &str, parts: &[ChatPart]) -> [ChatPart; 2] {
    let id = parts.iter().find_map(|part| {
        let ChatPart::Call { index: i, id, .. } = part else {
            return None;
        };
        (*i == index).then(|| id.clone())
    });
    [
        ChatPart::Call {
            index,
            id: id.unwrap(),
            name: name.to_owned(),
        },
        ChatPart::Arguments {
            index,
            more: arguments.to_owned(),
        },
    ]
}

#[test]
fn an_answer_is_reasoning_then_text_then_calls() {
    let (parts, reasoning_tokens) = read(mk_reader(true), ANSWER);
    let [f, no_arguments] = call(0, "f", "{}", &parts);
    let [g, arguments] = call(1, "g", r#"{"x": 2}"#, &parts);
    let reasoning = ChatPart::Reasoning("First f.".to_owned());
    let text = ChatPart::Text("So:".to_owned());
    assert_eq!(parts, [reasoning, text, f, no_arguments, g, arguments]);
    // A token is a character here: the marks count, and the last one of `<think>` opens it.
    assert_eq!(reasoning_tokens, ">\nFirst f.\n</think>".len());
}

#[test]
fn a_client_chooses_what_it_is_shown_of_reasoning() {
    let text = |text: &str| ChatPart::Text(text.to_owned());
    let thought = "<think>\nHm.\n</think>\n\nYes.";
    let shown = |shown| read(mk_reader_showing(shown, false), thought).0;
    assert_eq!(shown(ReasoningShown::InText), [text(thought)]);
    assert_eq!(shown(ReasoningShown::Omitted), [text("Yes.")]);
    let apart = [ChatPart::Reasoning("Hm.".to_owned()), text("Yes.")];
    assert_eq!(shown(ReasoningShown::Apart), apart);
    assert_eq!(shown(ReasoningShown::AtOnce), apart);
    let mut at_once = mk_reader_showing(ReasoningShown::AtOnce, false);
    assert_eq!(at_once.read(&mk_delta("<think>Hm", false)).parts, []);
    let ended = at_once.read(&mk_delta(" hm", true)).parts;
    assert_eq!(ended, [ChatPart::Reasoning("Hm hm".to_owned())]);
}

#[test]
fn calls_stay_text_where_no_tool_was_offered() {
    let answer = r#"<tool_call>{"name": "f", "arguments": {}}</tool_call>"#;
    let (parts, _) = read(mk_reader(false), answer);
    assert_eq!(parts, [ChatPart::Text(answer.to_owned())]);
}

#[test]
fn only_the_first_call_is_sent_where_one_was_allowed() {
    let mut reader = mk_reader(true);
    reader.parallel_calls = false;
    let (parts, _) = read(reader, ANSWER);
    let [f, no_arguments] = call(0, "f", "{}", &parts);
    assert_eq!(parts[2..], [f, no_arguments]);
}

#[test]
fn an_answer_that_calls_ends_for_its_calls_unless_it_is_cut() {
    let stop = Finish::Stop(StopMatch::Token(2));
    let mut reader = mk_reader(true);
    assert_eq!(
        reader.finish_body(Some(&stop)),
        FinishBody::from(Some(&stop))
    );
    reader.read(&mk_delta(r#"<tool_call>{"name": "f""#, false));
    assert_eq!(
        reader.finish_body(Some(&stop)),
        FinishBody::of_calls(Some(&stop))
    );
    let cut = Some(&Finish::Length);
    assert_eq!(reader.finish_body(cut), FinishBody::from(cut));
}

#[test]
fn an_id_that_a_model_gives_twice_is_used_once() {
    let call = "<tool_call>{\"id\": \"a\", \"name\": \"f\", \"arguments\": {}}</tool_call>";
    let (parts, _) = read(mk_reader(true), &format!("{call}{call}"));
    let ids = parts.iter().filter_map(|part| match part {
        ChatPart::Call { id, .. } => Some(id.as_str()),
        ChatPart::Reasoning(_) | ChatPart::Text(_) | ChatPart::Arguments { .. } => None,
    });
    let ids: Vec<&str> = ids.collect();
    assert_eq!(ids[0], "a");
    assert!(ids.len() == 2 && ids[1].starts_with("call_"), "{ids:?}");
}
