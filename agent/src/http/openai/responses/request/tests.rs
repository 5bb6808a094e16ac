//! Which chat a request asks for, and what its answer says of it.

use super::*;
use crate::http::body::parse;
use serde_json::json;

fn read(extra: Value) -> Result<(ChatAsked, Echo), ApiError> {
    let mut body = json!({"input": "Hi"});
    let fields = body.as_object_mut().unwrap();
    fields.extend(extra.as_object().unwrap().clone());
    parse::<ResponsesRequest>(body.to_string().as_bytes())?.into_chat()
}

#[track_caller]
fn assert_refused(extra: Value, param: &str) {
    let why = read(extra).err().unwrap();
    assert_eq!(
        (why.status.as_u16(), why.param.as_deref()),
        (400, Some(param))
    );
}

#[test]
fn flat_tools_are_nested_in_their_order_and_nulls_are_absent() {
    let tool = r#"{"strict": true, "type": "function", "name": "f", "description": null, "parameters": {"b": 1, "a": 2}}"#;
    let tool: TemplateValue = serde_json::from_str(tool).unwrap();
    let nested = serde_json::to_string(&nested(&tool)).unwrap();
    let expected =
        r#"{"type":"function","function":{"strict":true,"name":"f","parameters":{"b":1,"a":2}}}"#;
    assert_eq!(nested, expected);
}

#[test]
fn a_chat_gets_what_was_asked() {
    let (asked, _) = read(json!({
        "max_output_tokens": 7, "temperature": 0.5, "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"format": {"type": "json_object"}, "verbosity": "medium"}, "stream": true,
        "tool_choice": {"type": "function", "name": "f"}, "include": [LOGPROBS], "top_logprobs": 2,
    }))
    .unwrap();
    let chat = asked.settings;
    assert_eq!((chat.max_tokens, chat.temperature), (Some(7), Some(0.5)));
    assert_eq!((chat.logprobs, chat.top_logprobs), (Some(true), Some(2)));
    assert_eq!(chat.reasoning_effort.as_deref(), Some("low"));
    assert_eq!(asked.constraint, Some(Constraint::of_json("text.format")));
    assert!(matches!(chat.tool_choice, Some(ToolChoice::Named(_))));
}

#[test]
fn an_answer_says_what_was_asked_or_the_default() {
    let schema =
        json!({"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true});
    let (_, echo) = read(json!({
        "store": true, "metadata": {"a": "b"}, "text": {"format": schema},
        "tool_choice": {"type": "function", "name": "f"}, "tools": [{"type": "function", "name": "f"}],
    }))
    .unwrap();
    let params = pd_engine::sample::params::SamplingParams::default();
    let said = serde_json::to_value(echo.with_sampling(&params)).unwrap();
    assert_eq!(said["store"], false);
    assert_eq!(said["metadata"], json!({"a": "b"}));
    assert_eq!(said["text"]["format"], schema);
    assert_eq!(
        said["tool_choice"],
        json!({"type": "function", "name": "f"})
    );
    assert_eq!(said["tools"], json!([{"type": "function", "name": "f"}]));
    assert_eq!(said["temperature"], json!(1.0));
    assert_eq!(said["instructions"], Value::Null);
    assert_eq!(said["truncation"], "disabled");
}

#[test]
fn what_is_not_served_is_refused_by_its_name() {
    assert_refused(
        json!({"previous_response_id": "resp_1"}),
        "previous_response_id",
    );
    assert_refused(
        json!({"include": [LOGPROBS, "web_search_call.results"]}),
        "include[1]",
    );
    assert_refused(json!({"top_logprobs": 2}), "top_logprobs");
    assert_refused(
        json!({"tool_choice": {"type": "function"}}),
        "tool_choice.name",
    );
    assert_refused(
        json!({"tool_choice": {"type": "mcp", "name": "f"}}),
        "tool_choice.type",
    );
    assert_refused(json!({"text": {"verbosity": "low"}}), "text.verbosity");
    assert_refused(json!({"text": {"form": {}}}), "text.form");
    assert_refused(json!({"reasoning": {"mode": "pro"}}), "reasoning.mode");
    assert_refused(
        json!({"text": {"format": {"type": "json_schema"}}}),
        "text.format",
    );
    read(json!({"include": [ENCRYPTED], "truncation": "disabled", "background": false})).unwrap();
}
