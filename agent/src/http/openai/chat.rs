//! `/v1/chat/completions`: messages rendered by the model's chat template, answered as OpenAI does.

mod answer;
mod asked;
mod events;
mod reader;

use super::OpenAiRequest;
use super::message;
use crate::http::body::JsonBody;
use crate::http::error::ApiError;
use crate::http::sse;
use crate::service::App;
use answer::{Answered, ChatAnswer, ChatCompletion};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use events::ChatEvents;
use std::sync::Arc;

pub(crate) use answer::ContentLogprob;
pub(crate) use asked::{ChatAsked, ChatStarted};
#[cfg(test)]
pub(crate) use reader::tests::mk_reader;
pub(crate) use reader::{ChatPart, ChoiceReader};

pub(crate) async fn chat_completions(
    State(app): State<Arc<App>>,
    JsonBody(mut request, share): JsonBody<OpenAiRequest<bool>>,
) -> Result<Response, ApiError> {
    let service = app.enter().await?;
    let usage_events = request.usage_events();
    let return_token_ids = request.return_token_ids.unwrap_or(false);
    let asked = ChatAsked {
        dialect: request.dialect("messages"),
        id_prefix: "chatcmpl-",
        messages: message::into_template_messages(request.messages.take())?,
        constraint: request.take_constraint()?,
        settings: request,
    };
    let ChatStarted {
        head,
        readers,
        texts,
        tally,
        generation,
        streams,
        ..
    } = asked.start(&app, &service, share).await?;
    if streams {
        let events = ChatEvents::new(head, readers, texts, tally, usage_events)
            .with_token_ids(return_token_ids);
        return Ok(sse::respond(generation, events));
    }
    let answers = readers.into_iter().map(ChatAnswer::new).collect();
    let answers = generation.collect_into(answers, ChatAnswer::extend).await?;
    let answered = Answered {
        head,
        texts,
        tally,
        return_token_ids,
    };
    Ok(Json(ChatCompletion::new(answered, answers)).into_response())
}
