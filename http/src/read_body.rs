//! Reading a request's body within its limit and within that of all bodies together.

use crate::body::stalled;
use crate::body_budget::{BodyBudget, BodyShare};
use crate::refused::discard;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, EXPECT};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;

/// A whole body. It counts against the budget while `share` is held.
#[derive(Debug)]
pub struct WholeBody {
    pub bytes: Bytes,
    pub share: BodyShare,
}

/// Why a body is not read to its end.
#[derive(Debug)]
pub enum BodyError {
    /// It is, or says that it is, larger than one body may be.
    TooLarge,
    /// The bodies of other requests leave no room for it.
    NoRoom,
    /// It did not come to its end: 408 where nothing came for too long, 400 where its client broke off.
    Incomplete { status: StatusCode, why: String },
}

/// Reads a request's body. One that is larger than `bytes_max` is refused before it is read, or where its length is not
/// announced as soon as it passes the limit; what the client still sends is discarded for a while, so that it gets to
/// read the answer.
///
/// # Errors
/// It cannot be read to its end, or may not.
pub async fn read_body(
    headers: &HeaderMap,
    mut body: Body,
    bytes_max: usize,
    budget: &BodyBudget,
) -> Result<WholeBody, BodyError> {
    let announced = announced_len(headers);
    if announced.is_some_and(|len| len > bytes_max as u64) {
        // A client that asks first has sent nothing yet.
        if !headers.contains_key(EXPECT) {
            discard(body).await;
        }
        return Err(BodyError::TooLarge);
    }
    let mut share = BodyShare::default();
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| incomplete(&error))?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let len = first.len() + all.len() + data.len();
        if len > bytes_max {
            drop((first, all));
            discard(body).await;
            return Err(BodyError::TooLarge);
        }
        if budget.grow(&mut share, len).is_err() {
            drop((first, all, share));
            discard(body).await;
            return Err(BodyError::NoRoom);
        }
        if first.is_empty() && all.is_empty() {
            first = data;
        } else {
            if all.is_empty() {
                let capacity = announced.and_then(|len| usize::try_from(len).ok());
                all.reserve(capacity.unwrap_or(0));
                all.extend_from_slice(&first);
                first = Bytes::new();
            }
            all.extend_from_slice(&data);
        }
    }
    let bytes = if all.is_empty() { first } else { all.freeze() };
    Ok(WholeBody { bytes, share })
}

fn announced_len(headers: &HeaderMap) -> Option<u64> {
    let len = headers.get(CONTENT_LENGTH)?;
    len.to_str().ok()?.parse().ok()
}

fn incomplete(error: &axum::Error) -> BodyError {
    let (status, why) = match stalled(error) {
        Some(stalled) => (StatusCode::REQUEST_TIMEOUT, stalled.to_string()),
        None => (
            StatusCode::BAD_REQUEST,
            format!("the body broke off: {error}"),
        ),
    };
    BodyError::Incomplete { status, why }
}
