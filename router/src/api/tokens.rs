//! `/tokenize` and `/detokenize`: any ready worker of the model answers, as all have its vocabulary.

use super::body;
use crate::clock::timeout;
use crate::error::ApiError;
use crate::headers;
use crate::router::Router;
use crate::workers::Worker;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Method, StatusCode};
use pd_http::WholeBody;
use pd_protocol::Role;
use rand::seq::SliceRandom;
use serde::Deserialize;
use std::sync::Arc;

/// Ids take up to seven bytes each, and a text has at most as many as bytes; prompts beyond 4 MiB are not counted.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Workers asked in turn: one may end just now.
const ATTEMPTS_MAX: usize = 2;

/// All that is read of a body.
#[derive(Default, Deserialize)]
struct Addressed {
    model: Option<String>,
}

pub(super) async fn relay(State(router): State<Arc<Router>>, request: Request) -> Response {
    let (mut head, body) = request.into_parts();
    let id = router.request_ids.assign(&mut head.headers, rand::random);
    let answer = timeout(router.request_timeout, answer(&router, head, body)).await;
    let late = || Err(ApiError::timeout(router.request_timeout));
    let mut response = answer.unwrap_or_else(|_| late()).into_response();
    id.write_to(response.headers_mut());
    response
}

async fn answer(router: &Router, head: Parts, body: Body) -> Result<Response, ApiError> {
    router.api_keys.check(&head.headers)?;
    headers::check_number(&head.headers)?;
    let WholeBody {
        bytes: body,
        share: _share,
    } = body::read(router, &head, body).await?;
    // vLLM's workers have no such paths below /v1.
    let path = head.uri.path();
    let path = PathAndQuery::try_from(path.strip_prefix("/v1").unwrap_or(path));
    let path = path.expect("a route's path is one");
    let workers = workers(router, addressed(&body).await?.model.as_deref())?;
    let mut headers = headers::for_workers(head.headers);
    router.api_keys.replace(&mut headers);
    let mut failure = None;
    for worker in workers.into_iter().take(ATTEMPTS_MAX) {
        let client = &worker.client;
        let request = client.request(&Method::POST, &path, &headers, body.clone());
        match client.exchange(request, ANSWER_BYTES_MAX).await {
            Ok((head, body)) => return Ok(relayed(head.status, body)),
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.map_or_else(no_worker, ApiError::from))
}

fn relayed(status: StatusCode, body: Bytes) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// A body that names no model, as none that is no JSON does, goes to a worker of any, which says what is wrong with it.
async fn addressed(body: &Bytes) -> Result<Addressed, ApiError> {
    body::look_through(body, |body| {
        serde_json::from_slice(body).unwrap_or_default()
    })
    .await
}

/// Ready workers of the model, in any order.
fn workers(router: &Router, asked: Option<&str>) -> Result<Vec<Arc<Worker>>, ApiError> {
    let fleet = router.registry.fleet();
    let model = fleet.meant(asked);
    let groups = fleet.serving(model);
    let members = groups
        .iter()
        .flat_map(|group| Role::ALL.map(|role| group.pool(role)))
        .flatten();
    let mut workers: Vec<Arc<Worker>> = members.map(|m| Arc::clone(&m.worker)).collect();
    workers.shuffle(&mut rand::rng());
    match model {
        _ if !workers.is_empty() => Ok(workers),
        Some(model) if !fleet.knows(model) && !fleet.known_models().is_empty() => {
            let message = format!(
                "the model {model:?} is not served here; GET /v1/models lists those that are"
            );
            Err(ApiError::unknown_model(message))
        }
        Some(_) | None => Err(no_worker()),
    }
}

fn no_worker() -> ApiError {
    ApiError::unavailable("no worker of the model is ready; retry later").code("no_worker")
}
