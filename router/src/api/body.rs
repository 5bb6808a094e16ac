//! Reading a request's body within the limit. A body that is too large is refused before it is
//! read, or where its length is not announced as soon as it passes the limit; what the client
//! still sends is discarded for a while, so that it gets to read the answer.

use crate::body_budget::{BodyBudget, BodyShare};
use crate::body_limit::BodyLimit;
use crate::error::ApiError;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, EXPECT};
use http::request::Parts;
use http_body_util::BodyExt;

/// # Errors
/// 413 beyond `limit`, 503 where other bodies leave no room, 408 if nothing of it comes for too long, 400 if the client broke off.
pub(super) async fn read(
    head: &Parts,
    mut body: Body,
    limit: BodyLimit,
    budget: &BodyBudget,
) -> Result<(Bytes, BodyShare), ApiError> {
    if announced_len(head).is_some_and(|len| len > limit.bytes as u64) {
        // A client that asks first has sent nothing yet.
        if !head.headers.contains_key(EXPECT) {
            pd_http::discard(body).await;
        }
        return Err(limit.exceeded());
    }
    let mut share = BodyShare::default();
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match pd_http::stalled(&error) {
            Some(stalled) => ApiError::invalid(StatusCode::REQUEST_TIMEOUT, stalled.to_string()),
            None => {
                let message = format!("the body broke off: {error}");
                ApiError::invalid(StatusCode::BAD_REQUEST, message)
            }
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let len = first.len() + all.len() + data.len();
        if len > limit.bytes {
            drop((first, all));
            pd_http::discard(body).await;
            return Err(limit.exceeded());
        }
        if let Err(error) = budget.grow(&mut share, len) {
            drop((first, all, share));
            pd_http::discard(body).await;
            return Err(error.into());
        }
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            if all.is_empty() {
                all.reserve(announced_capacity(head, limit.bytes));
                all.extend_from_slice(&first);
                first = Bytes::new();
            }
            all.extend_from_slice(&data);
        }
    }
    let whole = if all.is_empty() { first } else { all.freeze() };
    Ok((whole, share))
}

fn announced_len(head: &Parts) -> Option<u64> {
    let len = head.headers.get(CONTENT_LENGTH)?;
    len.to_str().ok()?.parse().ok()
}

fn announced_capacity(head: &Parts, bytes_max: usize) -> usize {
    let announced = announced_len(head).and_then(|len| usize::try_from(len).ok());
    announced.unwrap_or(0).min(bytes_max)
}
