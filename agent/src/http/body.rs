//! Request bodies: bounded, UTF-8, JSON, of the right shape; each failure says where.

use super::error::ApiError;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use http::{StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::error::Category;

/// A JSON body. The content type is not asked for, as SGLang's clients do not always send it.
pub(crate) struct JsonBody<T>(pub(crate) T);

/// Largest body that is read, as a request extension; set beside axum's own limit so that a
/// declared length is refused before a byte is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimit(pub(crate) usize);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let limit = request.extensions().get::<BodyLimit>().copied();
        let declared = request.headers().get(header::CONTENT_LENGTH);
        let declared = declared.and_then(|v| v.to_str().ok()?.parse::<usize>().ok());
        if let (Some(BodyLimit(limit)), Some(declared)) = (limit, declared)
            && declared > limit
        {
            return Err(too_large(limit));
        }
        match Bytes::from_request(request, state).await {
            Ok(bytes) => parse(&bytes).map(Self),
            Err(refused) if refused.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                Err(too_large(limit.map_or(0, |l| l.0)))
            }
            Err(refused) => Err(ApiError::new(refused.status(), refused.body_text())),
        }
    }
}

/// Reads `bytes` as JSON of shape `T`.
///
/// # Errors
/// 400 with the byte of invalid UTF-8, the line and column of malformed JSON, or the path of a
/// field of the wrong type.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|why| {
        let at = why.valid_up_to();
        ApiError::new(
            StatusCode::BAD_REQUEST,
            format!("the body is not UTF-8: byte {at} begins no character"),
        )
        .with_code("invalid_utf8")
    })?;
    if text.trim_start().starts_with('[') {
        // Derived types would read a list as their fields in order, which no API means.
        let message = "the body is a JSON list; send an object";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, message).with_code("invalid_type"));
    }
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
            ApiError::field(path.clone(), format!("`{path}`: {why}")).with_code("invalid_type")
        }
        Category::Data => ApiError::new(StatusCode::BAD_REQUEST, why.to_string()),
        Category::Syntax | Category::Eof | Category::Io => ApiError::new(
            StatusCode::BAD_REQUEST,
            format!("the body is not valid JSON: {why}"),
        )
        .with_code("invalid_json"),
    }
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the body is larger than {limit} bytes (--max-body-bytes)"),
    )
    .with_code("body_too_large")
}

#[cfg(test)]
mod tests;
