//! `/v1/chat/completions`, `/v1/completions`, `/v1/responses` and `/generate`: read the routing
//! fields, dispatch, relay.

use super::body;
use crate::clock::{self, Instant, timeout_at};
use crate::dispatch::dual_dispatch;
use crate::error::ApiError;
use crate::headers;
use crate::relay;
use crate::request::{Api, ClientRequest, RoutingFields};
use crate::router::Router;
use crate::split;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;
use pd_http::WholeBody;
use pd_spans::RequestSpan;
use std::sync::Arc;

pub(super) async fn chat_completions(
    State(router): State<Arc<Router>>,
    request: Request,
) -> Response {
    serve(&router, Api::ChatCompletions, request).await
}

pub(super) async fn completions(State(router): State<Arc<Router>>, request: Request) -> Response {
    serve(&router, Api::Completions, request).await
}

pub(super) async fn responses(State(router): State<Arc<Router>>, request: Request) -> Response {
    serve(&router, Api::Responses, request).await
}

/// A response by its id: workers store none.
pub(super) async fn stored_response(Path(id): Path<String>) -> ApiError {
    let message = format!(
        "there is no response `{id}` here: none is stored; keep what POST /v1/responses answers, and send it as `input`"
    );
    ApiError::invalid(StatusCode::NOT_FOUND, message).code("response_not_found")
}

pub(super) async fn generate(State(router): State<Arc<Router>>, request: Request) -> Response {
    serve(&router, Api::Generate, request).await
}

async fn serve(router: &Arc<Router>, api: Api, request: Request) -> Response {
    let accepted = Instant::now();
    let deadline = accepted + router.request_timeout;
    let (mut head, body) = request.into_parts();
    let id = router.request_ids.assign(&mut head.headers, rand::random);
    let spans = router.spans.as_ref();
    let span = spans.map(|spans| spans.serve(api.path(), &mut head.headers));
    let answer = answer(router, api, (head, body), accepted, span.clone());
    let mut response = match timeout_at(deadline, answer).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => refused(router, error),
        Err(_) => refused(router, ApiError::timeout(router.request_timeout)),
    };
    if let Some(span) = span {
        span.answered(response.status());
    }
    id.write_to(response.headers_mut());
    router.metrics.answered(api, response.status());
    response
}

fn refused(router: &Router, error: ApiError) -> Response {
    if let Some(code) = error.own_code() {
        router.metrics.refused(code);
    }
    error.into_response()
}

async fn answer(
    router: &Arc<Router>,
    api: Api,
    (head, body): (Parts, Body),
    accepted: Instant,
    span: Option<RequestSpan>,
) -> Result<Response, ApiError> {
    let accepted_unix_ns = clock::unix_ns();
    router.api_keys.check(&head.headers)?;
    headers::check_number(&head.headers)?;
    let WholeBody {
        bytes: body,
        share: _share,
    } = body::read(router, &head, body).await?;
    let routing = body::look_through(&body, move |body| RoutingFields::parse(api, body)).await??;
    let mut headers = headers::for_workers(head.headers);
    router.api_keys.replace(&mut headers);
    let request = ClientRequest {
        api,
        headers,
        body,
        routing,
        accepted,
        accepted_unix_ns,
        span,
    };
    if split::is_needed(router, &request) {
        return split::answer(router, request).await;
    }
    let (response, permit) = dual_dispatch(router, &request).await?;
    Ok(relay::respond(router, &request, response, permit))
}
