//! `/v1/completions`: prompts continued unchanged, answered as OpenAI does.

mod answer;
mod events;
mod logprobs;

use super::{Head, OpenAiRequest, Tally, TokenTexts, check_model, parts};
use crate::http::body::JsonBody;
use crate::http::constraint::Constraint;
use crate::http::error::ApiError;
use crate::http::prompt::{Prompt, Prompts};
use crate::http::sampling::Sampling;
use crate::http::sse;
use crate::http::token_stream::{Item, Part, TokenStream};
use crate::service::App;
use answer::{Answered, Completion};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use events::CompletionEvents;
use pd_engine::engine::LogprobOptions;
use pd_protocol::Role;
use std::sync::Arc;

/// OpenAI's default for this API.
const MAX_TOKENS: u32 = 16;

pub(crate) async fn completions(
    State(app): State<Arc<App>>,
    JsonBody(mut request, share): JsonBody<OpenAiRequest<u32>>,
) -> Result<Response, ApiError> {
    let service = app.enter().await?;
    check_model(request.model.as_deref(), &app.served_model_name)?;
    let dialect = request.dialect("prompt");
    let choices = request.choices()?;
    let constraint = request.take_constraint()?;
    let sampling = Arc::new(Sampling {
        default_max_new_tokens: Some(MAX_TOKENS),
        ..Sampling::try_from(&mut request)?
    });
    let logprobs = logprob_options(&request);
    let add_special_tokens = request.add_special_tokens.unwrap_or(true);
    let prompts = prompts(request.prompt.take())?;
    let parts = parts(prompts.len(), choices)?;
    let prompts = Prompt::encode(prompts, &service, add_special_tokens, dialect).await?;
    let grammar = Constraint::compiled(constraint, &service).await?;
    // Its text is tokens and a grammar now.
    drop(share);
    let bootstrap = request.take_bootstrap().resolve(app.role, parts)?;
    let head = Head::new(&app, &service, "cmpl-", request.rid.take())?;
    let echo = request.echo.unwrap_or(false);
    let answered = Answered {
        tally: Tally::new(&prompts.iter().map(Vec::len).collect::<Vec<_>>(), choices),
        echoes: echo.then(|| service.echoes(&prompts, choices)),
        texts: logprobs
            .return_logprob
            .then(|| TokenTexts(Arc::clone(service.engine.tokenizer()))),
        return_token_ids: request.return_token_ids.unwrap_or(false),
        skip_special_tokens: sampling.params.skip_special_tokens,
        head,
    };
    let item = |input_ids| Item {
        rid: answered.head.id.clone(),
        input_ids,
        sampling: Arc::clone(&sampling),
        logprobs: logprobs.clone(),
        grammar: grammar.clone(),
    };
    let items = prompts.into_iter().map(item).collect();
    let generation =
        TokenStream::start(&service, Part::of(items, choices, bootstrap), dialect).await?;
    // Prefill answers with one token, after its transfer: there is nothing to stream.
    if request.stream == Some(true) && app.role != Role::Prefill {
        let events = CompletionEvents::new(answered, parts, request.usage_events());
        return Ok(sse::respond(generation, events));
    }
    let mut answers = generation.collect().await?;
    if app.role == Role::Prefill {
        // Decode's lists begin with the first token; the router prepends the prompt's.
        answers
            .iter_mut()
            .for_each(|answer| answer.logprobs.clear());
    }
    Ok(Json(Completion::new(answered, answers)).into_response())
}

/// Log probabilities of an echoed prompt are returned with it; in a pair, prefill has them.
fn logprob_options(request: &OpenAiRequest<u32>) -> LogprobOptions {
    let echo = request.echo.unwrap_or(false);
    LogprobOptions {
        return_logprob: request.logprobs.is_some(),
        logprob_start_len: (echo && request.logprobs.is_some()).then_some(0),
        top_logprobs_num: request.logprobs.unwrap_or(0),
        ..LogprobOptions::default()
    }
}

fn prompts(given: Option<Prompts>) -> Result<Vec<Prompt>, ApiError> {
    let given = given.map(Prompts::into_vec).unwrap_or_default();
    if given.is_empty() {
        let message = "`prompt` is missing or an empty list; give at least one prompt";
        return Err(ApiError::field("prompt", message));
    }
    Ok(given)
}
