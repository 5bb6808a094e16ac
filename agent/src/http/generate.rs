//! `/generate`: SGLang's own API. One or several prompts, text or token ids, each with parameters.

mod answer;
mod events;
pub(crate) mod request;

use super::body::JsonBody;
use super::error::ApiError;
use super::openai::TokenTexts;
use super::sse;
use super::token_stream::{Part, TokenStream};
use crate::service::App;
use answer::{GenerateAnswer, Meta};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use events::GenerateEvents;
use pd_protocol::Role;
use request::GenerateBody;
use std::sync::Arc;
use tokio::time::Instant;

pub(crate) async fn generate(
    State(app): State<Arc<App>>,
    JsonBody(body, share): JsonBody<GenerateBody>,
) -> Result<Response, ApiError> {
    let started = Instant::now();
    let service = app.enter().await?;
    let stream = body.stream.unwrap_or(false) && app.role != Role::Prefill;
    let return_text = body.return_text_in_logprobs.unwrap_or(false);
    let request = body.read(&service, app.role).await?;
    // Its text is tokens now.
    drop(share);
    let parts = Part::of(request.items, request.choices, request.bootstrap);
    let meta = |part: &Part| Meta {
        id: part.item.rid.clone(),
        prompt_tokens: part.item.input_ids.len(),
        return_logprob: part.item.logprobs.return_logprob,
        top_logprobs: part.item.logprobs.top_logprobs_num > 0,
        token_ids_logprob: Arc::clone(&part.item.logprobs.token_ids_logprob),
        texts: return_text.then(|| TokenTexts(Arc::clone(service.engine.tokenizer()))),
        weight_version: service.engine.info().weight_version.clone(),
        started,
    };
    let metas: Vec<Meta> = parts.iter().map(meta).collect();
    let generation = TokenStream::start(&service, parts, request.dialect).await?;
    if stream {
        return Ok(sse::respond(
            generation,
            GenerateEvents::new(metas, request.batch),
        ));
    }
    let answers = generation.collect().await?;
    let answers = metas.iter().zip(&answers);
    let answers: Vec<_> = answers
        .map(|(meta, answer)| GenerateAnswer::new(meta, answer))
        .collect();
    if request.batch {
        return Ok(Json(answers).into_response());
    }
    let answer = answers.into_iter().next();
    Ok(Json(answer.expect("a request that is not a batch has one part")).into_response())
}
