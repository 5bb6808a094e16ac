//! A chat that an API asks for: read into one form, rendered, constrained and started.

use super::reader::{ChoiceReader, ReasoningShown};
use crate::http::constraint::Constraint;
use crate::http::dialect::Dialect;
use crate::http::error::ApiError;
use crate::http::openai::tools::Tools;
use crate::http::openai::{ChatPrompt, Head, OpenAiRequest, Tally, TokenTexts, check_model};
use crate::http::sampling::Sampling;
use crate::http::token_stream::{Item, Part, TokenStream};
use crate::service::{App, Service};
use pd_answers::ThoughtFrame;
use pd_engine::engine::LogprobOptions;
use pd_engine::text::Message;
use pd_http::BodyShare;
use pd_protocol::Role;
use std::sync::Arc;

/// What a request asks for.
pub(crate) struct ChatAsked {
    /// The names that its API has.
    pub(crate) dialect: Dialect,
    pub(crate) id_prefix: &'static str,
    pub(crate) messages: Vec<Message>,
    /// What the answer must be.
    pub(crate) constraint: Option<Constraint>,
    /// All else; its messages and constraints are not read.
    pub(crate) settings: OpenAiRequest<bool>,
}

/// A chat that is being answered, for an API to write down.
pub(crate) struct ChatStarted {
    pub(crate) head: Head,
    /// One for each choice.
    pub(crate) readers: Vec<ChoiceReader>,
    /// Set if log probabilities were requested.
    pub(crate) texts: Option<TokenTexts>,
    pub(crate) tally: Tally,
    pub(crate) generation: TokenStream,
    /// Whether the answer is sent as it is made.
    pub(crate) streams: bool,
    pub(crate) sampling: Arc<Sampling>,
}

// === impl ChatAsked ===

impl ChatAsked {
    /// Submits the chat and waits for its first step. `share` is what the request's body takes.
    ///
    /// # Errors
    /// 4xx for what cannot be served, and the failure that came before any step.
    pub(crate) async fn start(
        self,
        app: &App,
        service: &Service,
        share: BodyShare,
    ) -> Result<ChatStarted, ApiError> {
        let Self {
            dialect,
            id_prefix,
            messages,
            constraint: given,
            settings: mut request,
        } = self;
        check_model(request.model.as_deref(), &app.served_model_name)?;
        let choices = request.choices()?;
        request.fill_sampling(service.engine.info().sampling_defaults);
        let mut sampling = Sampling::try_from(&mut request)?;
        check_length(&sampling, dialect)?;
        let logprobs = logprob_options(&request)?;
        let bootstrap = request
            .take_bootstrap()
            .resolve(app.role, choices as usize)?;
        let shown = ReasoningShown::of(&request);
        let mut tools = Tools::take(&mut request, &service.answer_forms, dialect)?;
        let is_apart = shown != ReasoningShown::InText;
        let forms = service.answer_forms.of_request(is_apart, tools.is_some());
        sampling.params.shown_special_ids = forms.special_ids();
        let offered = tools.as_ref().map_or(&[][..], |tools| &tools.offered);
        let prompt = ChatPrompt::take(&mut request, messages);
        let rendered = prompt.render(service, offered, dialect)?;
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
        let head = Head::new(app, service, id_prefix, request.rid.take())?;
        let tally = Tally::new(&[input_ids.len()], choices);
        let sampling = Arc::new(sampling);
        let texts = logprobs
            .return_logprob
            .then(|| TokenTexts(Arc::clone(service.engine.tokenizer())));
        let item = Item {
            rid: head.id.clone(),
            input_ids,
            sampling: Arc::clone(&sampling),
            logprobs,
            grammar,
        };
        let parts = Part::of(vec![item], choices, bootstrap);
        Ok(ChatStarted {
            head,
            readers,
            texts,
            tally,
            generation: TokenStream::start(service, parts, dialect).await?,
            // Prefill answers with one token, after its transfer: there is nothing to stream.
            streams: request.stream == Some(true) && app.role != Role::Prefill,
            sampling,
        })
    }
}

fn check_length(sampling: &Sampling, dialect: Dialect) -> Result<(), ApiError> {
    if sampling.params.max_new_tokens != Some(0) {
        return Ok(());
    }
    let field = dialect.max_tokens;
    let message = format!("{field} is 0; give at least 1 (to score a prompt, use /v1/completions)");
    Err(ApiError::field(field, message))
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
        top_logprobs_num,
        ..LogprobOptions::default()
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
