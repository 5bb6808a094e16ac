//! Reading a request's body within the limits, and what the router has to know of it.

use crate::error::ApiError;
use crate::router::Router;
use axum::body::Body;
use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use pd_http::{BodyError, WholeBody, read_body};
use tokio::sync::Semaphore;

/// Bodies beyond this take longer to look through than others' tokens may wait.
const LARGE_BYTES: usize = 256 << 10;
/// Of those, one is looked through at a time, off the threads that relay.
static TURNS: Semaphore = Semaphore::const_new(1);

/// # Errors
/// 413 beyond the limit, 503 where other bodies leave no room, 408 if nothing of it comes for too long, 400 if the client
/// broke off.
pub(super) async fn read(router: &Router, head: &Parts, body: Body) -> Result<WholeBody, ApiError> {
    let (limit, budget) = (router.body_limit(), &router.body_budget);
    let read = read_body(&head.headers, body, limit.bytes, budget).await;
    read.map_err(|error| match error {
        BodyError::TooLarge => limit.exceeded(),
        BodyError::NoRoom => {
            let all = budget.bytes_max();
            let message = format!(
                "the bodies of the requests in flight have {all} bytes together (--max-total-payload-size); try again later"
            );
            ApiError::unavailable(message).code("bodies_too_large")
        }
        BodyError::Incomplete { status, why } => ApiError::invalid(status, why),
    })
}

/// What `look` finds in a body.
///
/// # Errors
/// 500 when it panics.
pub(super) async fn look_through<T: Send + 'static>(
    body: &Bytes,
    look: impl FnOnce(&Bytes) -> T + Send + 'static,
) -> Result<T, ApiError> {
    if body.len() <= LARGE_BYTES {
        return Ok(look(body));
    }
    let turn = TURNS.acquire().await.expect("it is never closed");
    let body = body.clone();
    let looking = tokio::task::spawn_blocking(move || {
        let found = look(&body);
        drop(turn);
        found
    });
    looking.await.map_err(|why| {
        let message = format!("the body's reader panicked: {why}");
        ApiError::of_server(StatusCode::INTERNAL_SERVER_ERROR, message)
    })
}
