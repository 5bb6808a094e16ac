//! `/v1/chat/completions`: messages rendered by the model's chat template, answered as OpenAI does.

mod answer;
mod events;
mod reader;

use super::tools::Tools;
use super::{Head, OpenAiRequest, Tally, TokenTexts};
use crate::http::body::JsonBody;
use crate::http::constraint::Constraint;
use crate::http::dialect::Dialect;
use crate::http::error::ApiError;
use crate::http::sampling::Sampling;
use crate::http::sse;
use crate::http::token_stream::{Item, Part, TokenStream};
use crate::service::{App, Service};
use answer::{Answered, ChatAnswer, ChatCompletion};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use events::ChatEvents;
use pd_answers::{Prompt, ThoughtFrame};
use pd_engine::engine::LogprobOptions;
use pd_engine::text::{Conversation, Message};
use pd_protocol::Role;
use reader::{ChoiceReader, ReasoningShown};
use serde_json::{Map, Value};
use std::sync::Arc;

pub(crate) async fn chat_completions(
    State(app): State<Arc<App>>,
    JsonBody(mut request, share): JsonBody<OpenAiRequest<bool>>,
) -> Result<Response, ApiError> {
    let service = app.service()?;
    request.check_model(&app.served_model_name)?;
    let dialect = request.dialect("messages");
    let choices = request.choices()?;
    request.fill_sampling(service.engine.info().sampling_defaults);
    let given = request.take_constraint()?;
    let mut sampling = Sampling::try_from(&mut request)?;
    if sampling.params.max_new_tokens == Some(0) {
        let field = dialect.max_tokens;
        let message =
            format!("{field} is 0; give at least 1 (to score a prompt, use /v1/completions)");
        return Err(ApiError::field(field, message));
    }
    let logprobs = logprob_options(&request)?;
    let bootstrap = request
        .take_bootstrap()
        .resolve(app.role, choices as usize)?;
    let shown = ReasoningShown::of(&request);
    let mut tools = Tools::take(&mut request, &service.answer_forms)?;
    let is_apart = shown != ReasoningShown::InText;
    let forms = service.answer_forms.of_request(is_apart, tools.is_some());
    sampling.params.shown_special_ids = forms.special_ids();
    let rendered = Rendered::new(service, &mut request, tools.as_ref())?;
    let thought = service.answer_forms.thought(rendered.prompt());
    let constraint = constraint(given, tools.as_mut(), thought)?;
    let reader = || ChoiceReader::new(forms, tools.as_ref(), shown, rendered.prompt());
    let readers: Vec<ChoiceReader> = std::iter::repeat_with(reader)
        .take(choices as usize)
        .collect();
    drop(tools);
    // The template writes the special tokens itself.
    let add_special_tokens = request.add_special_tokens.unwrap_or(false);
    let input_ids = encode(service, rendered.text, add_special_tokens, dialect).await?;
    let grammar = Constraint::compiled(constraint, service).await?;
    // Its text is tokens and a grammar now.
    drop(share);
    let head = Head::new(&app, "chatcmpl-", request.rid.take())?;
    let tally = Tally::new(&[input_ids.len()], choices);
    let item = Item {
        rid: head.id.clone(),
        input_ids,
        sampling: Arc::new(sampling),
        logprobs,
        grammar,
    };
    let parts = Part::of(vec![item], choices, bootstrap);
    let generation = TokenStream::start(service, parts, dialect).await?;
    let texts = logprobs
        .return_logprob
        .then(|| TokenTexts(Arc::clone(service.engine.tokenizer())));
    let return_token_ids = request.return_token_ids.unwrap_or(false);
    // Prefill answers with one token, after its transfer: there is nothing to stream.
    if request.stream == Some(true) && app.role != Role::Prefill {
        let usage_events = request.usage_events();
        let events = ChatEvents::new(head, readers, texts, tally, usage_events)
            .with_token_ids(return_token_ids);
        return Ok(sse::respond(generation, events));
    }
    let answers = readers.into_iter().map(ChatAnswer::new).collect();
    let answers = generation.collect_into(answers, ChatAnswer::extend).await?;
    let weight_version = service.engine.info().weight_version.clone();
    let answered = Answered {
        head,
        texts,
        tally,
        weight_version,
        return_token_ids,
    };
    Ok(Json(ChatCompletion::new(answered, answers)).into_response())
}

/// What the request says that answers must be, or what its tools ask of them, behind what the model thinks.
fn constraint(
    given: Option<Constraint>,
    tools: Option<&mut Tools>,
    thought: Option<ThoughtFrame>,
) -> Result<Option<Constraint>, ApiError> {
    let of_tools = tools.and_then(|tools| tools.constraint.take());
    let constraint = Constraint::either(given, of_tools)?;
    Ok(match thought {
        Some(thought) => constraint.map(|constraint| constraint.behind(thought)),
        None => constraint,
    })
}

fn logprob_options(request: &OpenAiRequest<bool>) -> Result<LogprobOptions, ApiError> {
    let return_logprob = request.logprobs.unwrap_or(false);
    let top_logprobs_num = request.top_logprobs.unwrap_or(0);
    if top_logprobs_num > 0 && !return_logprob {
        let message = "`top_logprobs` is set but `logprobs` is not true; set it";
        return Err(ApiError::field("top_logprobs", message));
    }
    Ok(LogprobOptions {
        return_logprob,
        logprob_start_len: None,
        top_logprobs_num,
    })
}

async fn encode(
    service: &Service,
    text: String,
    add_special_tokens: bool,
    dialect: Dialect,
) -> Result<Vec<u32>, ApiError> {
    let ids = service
        .encode(vec![text], add_special_tokens, dialect)
        .await?;
    Ok(ids
        .into_iter()
        .next()
        .expect("one text has one list of ids"))
}

/// A conversation, rendered by the model's chat template.
struct Rendered {
    text: String,
    /// The text of the message that the answer continues.
    continued: Option<String>,
}

// === impl Rendered ===

impl Rendered {
    fn new(
        service: &Service,
        request: &mut OpenAiRequest<bool>,
        tools: Option<&Tools>,
    ) -> Result<Self, ApiError> {
        let messages = request.messages.take().unwrap_or_default();
        if messages.is_empty() {
            let message = "`messages` is missing or empty; give at least one message";
            return Err(ApiError::field("messages", message));
        }
        let messages = messages.into_iter().enumerate();
        let messages = messages.map(|(index, message)| message.into_template_message(index));
        let messages = messages.collect::<Result<Vec<Message>, ApiError>>()?;
        let template = service.engine.chat_template().ok_or_else(|| {
            let message = "the model has no chat template; use /v1/completions";
            ApiError::field("messages", message)
        })?;
        let kwargs = template_kwargs(request);
        let continues = request.continue_final_message.unwrap_or(false);
        if continues && request.add_generation_prompt == Some(true) {
            let message = "`continue_final_message` and `add_generation_prompt` are both true: the \
                           prompt ends in the last message or with a new one; set one of them";
            return Err(ApiError::field("continue_final_message", message));
        }
        let conversation = Conversation {
            messages: &messages,
            tools: tools.map_or(&[], |tools| &tools.offered),
            kwargs: &kwargs,
        };
        let rendered = if continues {
            template.render_continued(conversation)
        } else {
            template.render(conversation, request.add_generation_prompt.unwrap_or(true))
        };
        let last = messages.last().filter(|_| continues);
        Ok(Self {
            text: rendered.map_err(|why| ApiError::field("messages", why.to_string()))?,
            continued: last.map(|message| message.content.clone()),
        })
    }

    /// What the answer goes on from.
    fn prompt(&self) -> Prompt<'_> {
        match &self.continued {
            Some(message) => Prompt::Continued(message),
            None => Prompt::Opened(&self.text),
        }
    }
}

/// The client's variables of the template. As in SGLang, `reasoning_effort` sets the variables by
/// which templates know it; variables that the client sets directly take precedence.
fn template_kwargs(request: &mut OpenAiRequest<bool>) -> Map<String, Value> {
    let mut kwargs = request.chat_template_kwargs.take().unwrap_or_default();
    if let Some(effort) = request.reasoning_effort.take() {
        let thinks = Value::Bool(effort != "none");
        let variables = [
            ("thinking", thinks.clone()),
            ("enable_thinking", thinks),
            ("reasoning_effort", Value::String(effort)),
        ];
        for (name, value) in variables {
            kwargs.entry(name).or_insert(value);
        }
    }
    kwargs
}

#[cfg(test)]
mod tests;
