//! Questions that the router passes to its workers: `/get_model_info` to one of them,
//! `/server_info`, `/flush_cache` and `/health_generate` to all.

use crate::client::{Break, ClientError};
use crate::clock::timeout;
use crate::error::ApiError;
use crate::router::Router;
use crate::workers::Worker;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::future::join_all;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use pd_protocol::Role;
use serde_json::{Map, Value, json};
use std::sync::Arc;

const ANSWER_BYTES_MAX: usize = 4 << 20;

/// One worker's answer.
pub(super) struct Answer {
    worker: Arc<Worker>,
    result: Result<(StatusCode, Bytes), ClientError>,
}

/// The model as a ready worker describes it.
pub(super) async fn model_info(
    State(router): State<Arc<Router>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    router.api_keys.check(&headers)?;
    let Some(worker) = ready_workers(&router).into_iter().next() else {
        return Err(ApiError::unavailable("no worker is ready"));
    };
    let path = PathAndQuery::from_static("/get_model_info");
    let answer = ask(&router, worker, Method::GET, path).await;
    let (status, body) = answer.result?;
    Ok((status, [(CONTENT_TYPE, "application/json")], body).into_response())
}

/// What every ready worker says of itself, by role.
pub(super) async fn server_info(
    State(router): State<Arc<Router>>,
    headers: HeaderMap,
) -> Result<Json<Value>, ApiError> {
    router.api_keys.check(&headers)?;
    let path = PathAndQuery::from_static("/server_info");
    let mut by_role: Map<String, Value> = Map::new();
    for role in Role::ALL {
        by_role.insert(role.to_string(), json!([]));
    }
    for answer in ask_all(&router, Method::GET, path).await {
        let role = answer.worker.spec.role.as_str();
        if let (Ok((_, body)), Some(Value::Array(list))) = (&answer.result, by_role.get_mut(role)) {
            list.push(serde_json::from_slice(body).unwrap_or(Value::Null));
        }
    }
    by_role.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
    by_role.insert("workers".to_owned(), json!(router.registry.list().len()));
    Ok(Json(Value::Object(by_role)))
}

/// Empties the prefix caches of all ready workers.
pub(super) async fn flush_cache(
    State(router): State<Arc<Router>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    router.api_keys.check(&headers)?;
    let path = PathAndQuery::from_static("/flush_cache");
    let answers = ask_all(&router, Method::POST, path).await;
    if answers.is_empty() {
        return Err(ApiError::unavailable("no worker is ready"));
    }
    Ok((joint_status(&answers), Json(summary(&answers))).into_response())
}

/// 200 if every worker succeeded.
pub(super) fn joint_status(answers: &[Answer]) -> StatusCode {
    if answers.iter().all(Answer::is_success) {
        StatusCode::OK
    } else {
        StatusCode::BAD_GATEWAY
    }
}

/// Each worker with what it answered.
pub(super) fn summary(answers: &[Answer]) -> Value {
    let workers: Map<String, Value> = answers
        .iter()
        .map(|answer| {
            let said = match &answer.result {
                Ok((status, _)) => json!(status.as_u16()),
                Err(error) => json!(error.to_string()),
            };
            (answer.worker.id().to_owned(), said)
        })
        .collect();
    json!({ "workers": workers })
}

pub(super) async fn ask_all(router: &Router, method: Method, path: PathAndQuery) -> Vec<Answer> {
    let workers = ready_workers(router).into_iter();
    join_all(workers.map(|worker| ask(router, worker, method.clone(), path.clone()))).await
}

async fn ask(router: &Router, worker: Arc<Worker>, method: Method, path: PathAndQuery) -> Answer {
    let mut headers = HeaderMap::new();
    if let Some(value) = router.api_keys.authorization() {
        headers.insert(AUTHORIZATION, value.clone());
    }
    let client = &worker.client;
    let request = client.request(&method, &path, &headers, Bytes::new());
    let exchange = client.exchange(request, ANSWER_BYTES_MAX);
    let result = match timeout(router.request_timeout, exchange).await {
        Ok(result) => result.map(|(head, body)| (head.status, body)),
        Err(_) => Err(Break::Timeout.into()),
    };
    Answer { worker, result }
}

/// Ready workers, prefill first.
fn ready_workers(router: &Router) -> Vec<Arc<Worker>> {
    let fleet = router.registry.fleet();
    Role::ALL
        .into_iter()
        .flat_map(|role| fleet.groups.iter().flat_map(move |group| group.pool(role)))
        .map(|member| Arc::clone(&member.worker))
        .collect()
}

// === impl Answer ===

impl Answer {
    fn is_success(&self) -> bool {
        matches!(&self.result, Ok((status, _)) if status.is_success())
    }
}
