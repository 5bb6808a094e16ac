//! Reading a request's body within the limit. A body that is too large is refused before it is
//! read, or where its length is not announced as soon as it passes the limit; what the client
//! still sends is discarded for a while, so that it gets to read the answer.

use crate::body_budget::{BodyBudget, BodyShare};
use crate::clock::timeout;
use crate::error::ApiError;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, EXPECT};
use http::request::Parts;
use http_body_util::BodyExt;
use std::time::Duration;

/// How much of a refused body is discarded, and for how long, before the connection is closed.
const DISCARD_BYTES_MAX: usize = 1 << 30;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// # Errors
/// 413 beyond `bytes_max`, 503 where other bodies leave no room, 408 if nothing of it comes for too long, 400 if the client broke off.
pub(super) async fn read(
    head: &Parts,
    mut body: Body,
    bytes_max: usize,
    budget: &BodyBudget,
) -> Result<(Bytes, BodyShare), ApiError> {
    if announced_len(head).is_some_and(|len| len > bytes_max as u64) {
        // A client that asks first has sent nothing yet.
        if !head.headers.contains_key(EXPECT) {
            discard(body).await;
        }
        return Err(too_large(bytes_max));
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
        if len > bytes_max {
            drop((first, all));
            discard(body).await;
            return Err(too_large(bytes_max));
        }
        if let Err(error) = budget.grow(&mut share, len) {
            drop((first, all, share));
            discard(body).await;
            return Err(error.into());
        }
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            if all.is_empty() {
                all.reserve(announced_capacity(head, bytes_max));
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

async fn discard(mut body: Body) {
    let mut discarded = 0;
    let all = async {
        while let Some(Ok(frame)) = body.frame().await {
            discarded += frame.data_ref().map_or(0, Bytes::len);
            if discarded > DISCARD_BYTES_MAX {
                break;
            }
        }
    };
    // Late or not, the answer is the same.
    let _ = timeout(DISCARD_TIMEOUT, all).await;
}

fn too_large(bytes_max: usize) -> ApiError {
    ApiError::invalid(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the body is larger than {bytes_max} bytes (--max-payload-size)"),
    )
}
