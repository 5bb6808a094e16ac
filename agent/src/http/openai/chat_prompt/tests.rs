//! Variables of the chat template.

use super::*;
use crate::http::body::parse;
use serde_json::json;

fn kwargs(body: &str) -> Value {
    let mut request: OpenAiRequest<bool> = parse(body.as_bytes()).unwrap();
    let ChatPrompt {
        chat_template_kwargs,
        reasoning_effort,
        ..
    } = ChatPrompt::take(&mut request, Vec::new());
    Value::Object(template_kwargs(chat_template_kwargs, reasoning_effort))
}

#[test]
fn an_effort_sets_the_variables_that_templates_know() {
    assert_eq!(
        kwargs(r#"{"reasoning_effort": "low"}"#),
        json!({"reasoning_effort": "low", "thinking": true, "enable_thinking": true})
    );
    assert_eq!(
        kwargs(r#"{"reasoning_effort": "none"}"#)["enable_thinking"],
        false
    );
    assert_eq!(kwargs("{}"), json!({}));
}

#[test]
fn the_clients_own_variables_take_precedence() {
    let body =
        r#"{"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": false}}"#;
    assert_eq!(kwargs(body)["enable_thinking"], false);
}
