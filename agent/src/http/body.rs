//! Request bodies: bounded, UTF-8, JSON, with known fields of the right types; each error says
//! where the body is wrong.

use super::error::ApiError;
use super::fields::{self, Scope};
use crate::service::App;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use http::StatusCode;
use pd_http::{BodyError, BodyShare, WholeBody, read_body};
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Bodies beyond this take longer to parse than a token may wait: a millisecond.
const LARGE_BYTES: usize = 256 << 10;
/// Of those, one at a time: they take a core each, and others' tokens need the rest.
static TURNS: Semaphore = Semaphore::const_new(1);

/// What a route parses its body into.
pub(crate) trait Body: DeserializeOwned + Send + 'static {
    /// The scope whose fields it may have.
    const SCOPE: Scope;
}

/// A JSON body, and what it takes of the room for all bodies. The content type is not checked, as SGLang's clients do not
/// always send it.
pub(crate) struct JsonBody<T>(pub(crate) T, pub(crate) BodyShare);

impl<T: Body> FromRequest<Arc<App>> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let limit = app.body_bytes_max();
        let (head, body) = request.into_parts();
        let read = read_body(&head.headers, body, limit, &app.body_budget).await;
        let WholeBody { bytes, share } = read.map_err(|error| refused(error, limit))?;
        let value = parse_in_turn(bytes).await?;
        Ok(Self(value, share))
    }
}

fn refused(error: BodyError, limit: usize) -> ApiError {
    match error {
        BodyError::TooLarge => {
            let message = format!("the body is larger than {limit} bytes (--max-body-bytes)");
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message).with_code("body_too_large")
        }
        BodyError::NoRoom => {
            let message =
                "the bodies of other requests leave no room for this one; try again later";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message).with_code("bodies_too_large")
        }
        BodyError::Incomplete { status, why } => ApiError::new(status, why),
    }
}

/// As [`parse`], and where that takes long off the HTTP threads, which must keep relaying tokens, one body at a time.
async fn parse_in_turn<T: Body>(bytes: Bytes) -> Result<T, ApiError> {
    if bytes.len() <= LARGE_BYTES {
        return parse(&bytes);
    }
    let turn = TURNS.acquire().await.expect("it is never closed");
    let parsing = tokio::task::spawn_blocking(move || {
        let parsed = parse(&bytes);
        drop(turn);
        parsed
    });
    parsing
        .await
        .map_err(|why| ApiError::internal(format!("the body's parser panicked: {why}")))?
}

/// Reads `bytes` as JSON of shape `T`.
///
/// # Errors
/// 400 with the byte of invalid UTF-8, the line and column of malformed JSON, or the path of a
/// field that is refused, unknown or of the wrong type.
pub(crate) fn parse<T: Body>(bytes: &[u8]) -> Result<T, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|why| {
        let at = why.valid_up_to();
        ApiError::new(
            StatusCode::BAD_REQUEST,
            format!("the body is not UTF-8: byte {at} begins no character"),
        )
        .with_code("invalid_utf8")
    })?;
    if text.trim_start().starts_with('[') {
        // A derived type would accept a list as its fields in order, which no API means.
        let message = "the body is a JSON list; send an object";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, message).with_code("invalid_type"));
    }
    fields::check(T::SCOPE, text)?;
    let mut json = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|why| {
        let path = why.path().to_string();
        explain(path, why.inner())
    })?;
    json.end().map_err(|why| explain(".".to_owned(), &why))?;
    Ok(value)
}

fn explain(path: String, why: &serde_json::Error) -> ApiError {
    match why.classify() {
        Category::Data if path != "." => {
            let message = format!("`{path}`: {}", plain(why));
            ApiError::field(path, message).with_code("invalid_type")
        }
        Category::Data => {
            let message = format!("the body: {}", plain(why));
            ApiError::new(StatusCode::BAD_REQUEST, message).with_code("invalid_type")
        }
        Category::Syntax | Category::Eof | Category::Io => ApiError::new(
            StatusCode::BAD_REQUEST,
            format!("the body is not valid JSON: {why}"),
        )
        .with_code("invalid_json"),
    }
}

/// How the parser's errors name the expected type, and how a client knows it.
const EXPECTED: &[(&str, &str)] = &[
    ("u32", "a whole number of at least 0"),
    ("i32", "a whole number"),
    ("u64", "a whole number of at least 0"),
    ("i64", "a whole number"),
    ("f32", "a number"),
    ("f64", "a number"),
    ("a boolean", "true or false"),
    ("a sequence", "a list"),
    ("a map", "an object"),
];

/// The parser's message without its position, which the path replaces, and without the names of
/// Rust's types.
fn plain(why: &serde_json::Error) -> String {
    let text = why.to_string();
    let position = format!(" at line {} column {}", why.line(), why.column());
    let text = text.strip_suffix(&position).unwrap_or(&text);
    let Some((found, expected)) = text.split_once(", expected ") else {
        return text.to_owned();
    };
    if expected.starts_with("struct ") {
        return format!("{found}, expected an object");
    }
    let meant = EXPECTED.iter().find(|(name, _)| *name == expected);
    format!(
        "{found}, expected {}",
        meant.map_or(expected, |(_, meant)| meant)
    )
}

#[cfg(test)]
mod tests;
