//! What a client reads when its body is wrong.

use super::{Body, JsonBody, parse};
use crate::http::fields::Scope;
use crate::service::tests::mk_spec;
use crate::service::{App, AppSpec};
use axum::extract::{FromRequest, Request};
use serde::Deserialize;
use std::sync::Arc;

#[derive(Debug, Deserialize)]
struct Shape {
    #[serde(rename = "items")]
    _items: Vec<Item>,
}

#[derive(Debug, Deserialize)]
struct Item {
    #[serde(rename = "size")]
    _size: f64,
}

impl Body for Shape {
    /// Messages may have any field.
    const SCOPE: Scope = Scope::Message;
}

fn refusal(body: &[u8]) -> (String, Option<String>) {
    let why = parse::<Shape>(body).unwrap_err();
    assert_eq!(why.status, 400);
    (why.message, why.param)
}

#[test]
fn malformed_json_is_answered_with_its_place() {
    let (message, _) = refusal(b"{\"items\":\n [}");
    assert!(
        message.starts_with("the body is not valid JSON"),
        "{message}"
    );
    assert!(message.ends_with("line 2 column 3"), "{message}");
    let (message, _) = refusal(b"{\"items\":[{\"size\":NaN}]}");
    assert!(
        message.starts_with("the body is not valid JSON"),
        "{message}"
    );
    let (message, _) = refusal(b"{\"items\":[]} x");
    assert!(message.contains("trailing characters"), "{message}");
}

#[test]
fn a_wrong_type_is_answered_with_its_path() {
    let (message, param) = refusal(b"{\"items\":[{\"size\":1},{\"size\":\"big\"}]}");
    assert_eq!(param.as_deref(), Some("items[1].size"));
    assert_eq!(
        message,
        "`items[1].size`: invalid type: string \"big\", expected a number"
    );
    let (message, _) = refusal(b"5");
    assert_eq!(
        message,
        "the body: invalid type: integer `5`, expected an object"
    );
}

#[test]
fn invalid_utf8_is_answered_with_its_byte() {
    let (message, _) = refusal(b"{\"items\":[], \"x\": \"\xff\"}");
    assert_eq!(
        message,
        "the body is not UTF-8: byte 19 begins no character"
    );
}

#[tokio::test]
async fn bodies_without_room_are_refused_and_may_be_tried_again() {
    let read = async |bodies_bytes_max| {
        let app = Arc::new(App::new(AppSpec {
            bodies_bytes_max,
            ..mk_spec()
        }));
        let text = format!("{{\"items\": []{}}}", " ".repeat(128 << 10));
        let request = Request::post("/generate").body(text.into()).unwrap();
        JsonBody::<Shape>::from_request(request, &app).await
    };
    let refused = read(64 << 10).await.err().unwrap();
    assert_eq!(
        (refused.status.as_u16(), refused.code),
        (503, Some("bodies_too_large"))
    );
    assert!(refused.message.contains("try again later"));
    assert!(read(256 << 10).await.is_ok());
}
