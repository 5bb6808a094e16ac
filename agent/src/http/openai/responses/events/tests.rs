//! The order of a streamed response's events, and how they nest.

use super::*;
use crate::http::choice::Finish;
use crate::http::openai::chat::mk_reader;
use crate::http::openai::responses::echo::Echo;
use crate::http::openai::{Head, MetadataBody, Tally};
use pd_engine::engine::StopMatch;
use pd_http::BodyShare;
use serde_json::{Value, json};

fn mk_events() -> ResponseEvents {
    let head = Head {
        id: "resp_1a".to_owned(),
        created: 7,
        model: "m".to_owned(),
        metadata: MetadataBody::default(),
    };
    let answer = ResponseAnswer::new(
        head,
        mk_reader(true),
        None,
        Tally::new(&[5], 1),
        Echo::default(),
        BodyShare::default(),
    );
    ResponseEvents::new(answer)
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

fn stop() -> Option<Finish> {
    Some(Finish::Stop(StopMatch::Token(2)))
}

/// The events of an answer that arrives in these steps.
fn all(steps: &[&str], finish: Option<Finish>) -> Vec<Value> {
    let mut events = mk_events();
    let mut sent = Vec::new();
    for step in steps {
        sent.extend(events.on_delta(0, mk_delta(step, None)));
    }
    sent.extend(events.on_delta(0, mk_delta("", finish)));
    sent.extend(events.on_end());
    values(sent)
}

fn values(events: Vec<ResponseEvent>) -> Vec<Value> {
    let value = |event: ResponseEvent| {
        let value = serde_json::to_value(&event).unwrap();
        assert_eq!(value["type"], ResponseEvents::name(&event).unwrap());
        value
    };
    events.into_iter().map(value).collect()
}

fn names(events: &[Value]) -> Vec<&str> {
    let names = events.iter().map(|event| event["type"].as_str().unwrap());
    names
        .map(|name| name.strip_prefix("response.").unwrap())
        .collect()
}

#[test]
fn a_text_is_a_message_of_one_part() {
    let events = all(&["Hi", " you"], stop());
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(names(&events), expected);
    let numbers: Vec<u64> = events
        .iter()
        .filter_map(|e| e["sequence_number"].as_u64())
        .collect();
    assert_eq!(numbers, (0..10).collect::<Vec<u64>>());
    let first = &events[0]["response"];
    assert_eq!(
        (&first["status"], &first["output"]),
        (&json!("in_progress"), &json!([]))
    );
    assert_eq!(first["usage"], Value::Null);
    let part = json!({"type": "output_text", "text": "Hi you", "annotations": [], "logprobs": []});
    let item = json!({"type": "message", "id": "msg_1a0", "status": "completed", "role": "assistant", "content": [part]});
    let delta = json!({
        "type": "response.output_text.delta", "item_id": "msg_1a0", "output_index": 0,
        "content_index": 0, "delta": " you", "logprobs": [], "sequence_number": 5,
    });
    assert_eq!(events[5], delta);
    assert_eq!(events[8]["item"], item);
    let last = &events[9]["response"];
    assert_eq!(
        (&last["status"], &last["output"]),
        (&json!("completed"), &json!([item]))
    );
    assert_eq!(last["usage"]["output_tokens"], 3);
    assert_eq!(last["usage"]["input_tokens_details"]["cached_tokens"], 4);
}

#[test]
fn thought_text_and_calls_are_items_one_after_the_other() {
    let call = |name: &str| {
        format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": {{\"x\": 2}}}}\n</tool_call>")
    };
    let (f, g) = (call("f"), call("g"));
    let events = all(&["<think>\nHm.\n</think>\n\n", "So: ", &f, &g], stop());
    let mut seen = names(&events);
    seen.dedup();
    let text = |kind: &'static str| {
        let (delta, done) = match kind {
            "reasoning" => ("reasoning_text.delta", "reasoning_text.done"),
            _ => ("output_text.delta", "output_text.done"),
        };
        [
            "output_item.added",
            "content_part.added",
            delta,
            done,
            "content_part.done",
            "output_item.done",
        ]
    };
    let call = [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ];
    let expected = [
        &["created", "in_progress"][..],
        &text("reasoning"),
        &text("output"),
        &call,
        &call,
        &["completed"],
    ];
    assert_eq!(seen, expected.concat());
    let output = events.last().unwrap()["response"]["output"].clone();
    let kinds: Vec<&Value> = output
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["type"])
        .collect();
    assert_eq!(
        kinds,
        ["reasoning", "message", "function_call", "function_call"]
    );
    assert_eq!(
        output[0]["content"][0],
        json!({"type": "reasoning_text", "text": "Hm."})
    );
    assert_eq!(output[0]["summary"], json!([]));
    assert_eq!(
        (&output[3]["name"], &output[3]["arguments"]),
        (&json!("g"), &json!("{\"x\": 2}"))
    );
    let done = events
        .iter()
        .rfind(|e| e["type"] == "response.function_call_arguments.done");
    assert_eq!(
        (&done.unwrap()["output_index"], &done.unwrap()["name"]),
        (&json!(3), &json!("g"))
    );
    assert!(done.unwrap().get("content_index").is_none());
}

#[test]
fn an_answer_that_is_cut_is_incomplete_with_its_last_item() {
    let events = all(&["<think>\nHm"], Some(Finish::Length));
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    let response = &last["response"];
    assert_eq!(
        response["incomplete_details"],
        json!({"reason": "max_output_tokens"})
    );
    assert_eq!(response["output"][0]["status"], "incomplete");
    assert_eq!(response["output"].as_array().unwrap().len(), 1);
}

#[test]
fn an_empty_answer_is_an_empty_message() {
    let events = all(&[], stop());
    let output = &events.last().unwrap()["response"]["output"];
    assert_eq!(output[0]["content"][0]["text"], "");
    assert!(!names(&events).contains(&"output_text.delta"));
}

#[test]
fn a_failure_is_the_last_event_with_what_there_was() {
    let mut events = mk_events();
    events.on_delta(0, mk_delta("Hi", None));
    let failed = values(events.on_failure(&ApiError::internal("the GPU is gone")));
    assert_eq!(names(&failed), ["failed"]);
    let response = &failed[0]["response"];
    let error = json!({"code": "server_error", "message": "the GPU is gone"});
    assert_eq!(
        (&response["status"], &response["error"]),
        (&json!("failed"), &error)
    );
    assert_eq!(response["output"][0]["content"][0]["text"], "Hi");
}
