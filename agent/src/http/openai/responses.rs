//! `/v1/responses`, as far as it needs no state: a chat in OpenAI's newer form, whose answer is a list of items. None is
//! stored, so a client keeps the history itself.

mod answer;
mod echo;
mod events;
mod input;
mod items;
mod request;

use super::chat::ChatStarted;
use crate::http::body::JsonBody;
use crate::http::error::ApiError;
use crate::http::sse;
use crate::service::App;
use answer::ResponseAnswer;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use events::ResponseEvents;
use http::StatusCode;
use std::sync::Arc;

pub(crate) use request::ResponsesRequest;

pub(crate) async fn responses(
    State(app): State<Arc<App>>,
    JsonBody(request, mut share): JsonBody<ResponsesRequest>,
) -> Result<Response, ApiError> {
    let service = app.enter().await?;
    let (asked, echo) = request.into_chat()?;
    // The answer says again what was asked.
    let held = share.split_off(echo.len());
    let started = asked.start(&app, &service, share).await?;
    let ChatStarted {
        head,
        readers,
        texts,
        tally,
        generation,
        streams,
        sampling,
    } = started;
    let reader = readers
        .into_iter()
        .next()
        .expect("a request without `n` has one choice");
    let echo = echo.with_sampling(&sampling.params);
    let answer = ResponseAnswer::new(head, reader, texts, tally, echo, held);
    if streams {
        return Ok(sse::respond(generation, ResponseEvents::new(answer)));
    }
    let extend = |answer: &mut ResponseAnswer, delta| _ = answer.extend(delta);
    let answers = generation.collect_into(vec![answer], extend).await?;
    let bodies = answers.iter().map(ResponseAnswer::ended);
    let body = bodies.into_iter().next().expect("one choice, one answer");
    Ok(Json(body).into_response())
}

/// A response by its id, which would be stored.
pub(crate) async fn stored(Path(id): Path<String>) -> ApiError {
    let message = format!(
        "there is no response `{id}` here: none is stored; keep what POST /v1/responses answers, and send it as `input`"
    );
    ApiError::new(StatusCode::NOT_FOUND, message).with_code("response_not_found")
}
