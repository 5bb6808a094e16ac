//! Reading a request's body within the limits.

use crate::error::ApiError;
use crate::router::Router;
use axum::body::Body;
use http::request::Parts;
use pd_http::{BodyError, WholeBody, read_body};

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
