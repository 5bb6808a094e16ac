//! The order and shape of a streamed chat's events.

use super::*;
use crate::http::choice::Finish;
use crate::http::openai::chat::reader::tests::mk_reader;
use pd_engine::engine::StopMatch;
use serde_json::{Value, json};

fn mk_events(choices: u32, last: bool) -> ChatEvents {
    mk_events_with(choices, UsageEvents { last, each: false })
}

fn mk_events_with(choices: u32, usage_events: UsageEvents) -> ChatEvents {
    let head = Head {
        id: "chatcmpl-1".to_owned(),
        created: 7,
        model: "m".to_owned(),
        metadata: MetadataBody::default(),
    };
    let tally = Tally::new(&[5], choices);
    let readers = (0..choices).map(|_| mk_reader(true)).collect();
    ChatEvents::new(head, readers, None, tally, usage_events)
}

fn mk_delta(text: &str, finish: Option<Finish>) -> Delta {
    Delta {
        texts: vec![text.to_owned()],
        token_ids: vec![1],
        cached_tokens: 4,
        finish,
        ..Delta::default()
    }
}

fn values(chunks: Vec<ChatChunk>) -> Vec<Value> {
    chunks
        .iter()
        .map(|c| serde_json::to_value(c).unwrap())
        .collect()
}

#[test]
fn a_choice_sends_role_then_text_then_end() {
    let mut events = mk_events(1, false);
    let first = values(events.on_delta(0, mk_delta("Hi", None)));
    assert_eq!(
        first[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    assert_eq!(first[1]["choices"][0]["delta"], json!({"content": "Hi"}));
    assert_eq!(first[1]["choices"][0]["finish_reason"], Value::Null);
    let last = values(events.on_delta(0, mk_delta("", Some(Finish::Length))));
    assert_eq!(last.len(), 1);
    assert_eq!(last[0]["choices"][0]["delta"], json!({}));
    assert_eq!(last[0]["choices"][0]["finish_reason"], "length");
    assert!(last[0].get("usage").is_none());
    assert!(events.on_end().is_empty());
}

#[test]
fn reasoning_and_calls_have_fields_of_their_own() {
    let mut events = mk_events(1, true);
    let texts = [
        "<think>",
        "Hm",
        "</think>",
        r#"<tool_call>{"name": "f", "arguments": "#,
        r#"{"x": 1}"#,
        "}</tool_call>",
    ];
    let steps = texts.map(|text| events.on_delta(0, mk_delta(text, None)));
    let end = mk_delta("", Some(Finish::Stop(StopMatch::Token(2))));
    let steps = steps.into_iter().chain([events.on_delta(0, end)]);
    let mut choices: Vec<Value> = steps
        .flat_map(values)
        .map(|chunk| chunk["choices"][0].clone())
        .collect();
    let id = choices[2]["delta"]["tool_calls"][0]["id"].take();
    assert!(id.as_str().unwrap().starts_with("call_"));
    let deltas: Vec<&Value> = choices.iter().map(|choice| &choice["delta"]).collect();
    assert_eq!(
        deltas,
        [
            &json!({"role": "assistant", "content": ""}),
            &json!({"reasoning_content": "Hm"}),
            &json!({"tool_calls": [{
                "index": 0, "id": null, "type": "function",
                "function": {"name": "f", "arguments": ""},
            }]}),
            &json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"x\": 1}"}}]}),
            &json!({}),
        ]
    );
    assert_eq!(choices[4]["finish_reason"], "tool_calls");
    let usage = &values(events.on_end())[0]["usage"];
    assert_eq!(usage["reasoning_tokens"], 3);
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 3);
}

#[test]
fn usage_is_the_last_event_and_null_in_the_others() {
    let mut events = mk_events(2, true);
    let first = values(events.on_delta(1, mk_delta("a", None)));
    assert_eq!(first[0]["usage"], Value::Null);
    assert!(first[0].as_object().unwrap().contains_key("usage"));
    events.on_delta(0, mk_delta("b", None));
    let end = values(events.on_end());
    assert_eq!(end[0]["choices"], json!([]));
    let usage = &end[0]["usage"];
    assert_eq!(usage["prompt_tokens"], 5);
    assert_eq!(usage["completion_tokens"], 2);
    assert_eq!(usage["total_tokens"], 7);
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 4);
}

#[test]
fn continuous_usage_is_that_of_the_answer_so_far() {
    let usage_events = UsageEvents {
        last: false,
        each: true,
    };
    let mut events = mk_events_with(1, usage_events);
    let counts = |chunks: Vec<ChatChunk>| -> Vec<Value> {
        let of = |chunk: Value| chunk["usage"]["completion_tokens"].clone();
        values(chunks).into_iter().map(of).collect()
    };
    assert_eq!(counts(events.on_delta(0, mk_delta("a", None))), [1, 1]);
    assert_eq!(counts(events.on_delta(0, mk_delta("b", None))), [2]);
    assert!(events.on_end().is_empty(), "it was not requested");
}

#[test]
fn a_step_without_text_sends_no_event() {
    let mut events = mk_events(1, false);
    events.on_delta(0, mk_delta("a", None));
    assert!(events.on_delta(0, mk_delta("", None)).is_empty());
}

/// The choice that came first has computed the prompt, and the others have found it in the cache.
#[test]
fn of_a_prompt_is_cached_what_no_choice_had_to_compute() {
    for order in [[0, 1], [1, 0]] {
        let mut events = mk_events(2, true);
        for (index, cached_tokens) in order.into_iter().zip([1, 4]) {
            let delta = Delta {
                cached_tokens,
                ..mk_delta("Hi", Some(Finish::Length))
            };
            events.on_delta(index, delta);
        }
        let usage = &values(events.on_end())[0]["usage"];
        assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 1);
    }
}
