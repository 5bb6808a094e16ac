//! All parts of one request (items times choices) in the engine: submitted together, read as one
//! stream, ended together.

use super::choice::{Choice, Delta, Finish};
use super::dialect::Dialect;
use super::error::ApiError;
use super::sampling::Sampling;
use super::traced;
use crate::service::Service;
use futures_util::stream::{self, BoxStream, SelectAll};
use futures_util::{Stream, StreamExt};
use pd_engine::engine::{GenerateRequest, LogprobOptions, TokenLogprob};
use pd_engine::grammar::Grammar;
use pd_engine::sample::stop_regex::StopRegex;
use pd_protocol::workers::BootstrapFields;
use std::sync::Arc;

/// One requested prompt.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) rid: String,
    pub(crate) input_ids: Vec<u32>,
    /// Of all prompts, unless each says its own.
    pub(crate) sampling: Arc<Sampling>,
    pub(crate) logprobs: LogprobOptions,
    pub(crate) grammar: Option<Grammar>,
}

/// One choice of one item, with the room of its KV.
#[derive(Debug)]
pub(crate) struct Part {
    /// Shared: what does not fit the context is refused before it is copied.
    pub(crate) item: Arc<Item>,
    pub(crate) bootstrap: Option<BootstrapFields>,
    pub(crate) choice: u32,
}

/// Deltas of all parts as they arrive, each with its part's index. Dropping it aborts all parts.
pub(crate) struct TokenStream {
    parts: usize,
    first: Option<(usize, Delta)>,
    rest: SelectAll<BoxStream<'static, (usize, Result<Delta, ApiError>)>>,
}

/// A part's whole answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) token_ids: Vec<u32>,
    pub(crate) logprobs: Vec<TokenLogprob>,
    pub(crate) prompt_logprobs: Vec<TokenLogprob>,
    pub(crate) cached_tokens: u32,
    pub(crate) spec_verify_ct: Option<u32>,
    pub(crate) finish: Option<Finish>,
}

// === impl TokenStream ===

impl TokenStream {
    /// Submits every part and waits for the first step of any, so that a request that fails before
    /// its first token still gets its own status code. `dialect` words a refusal.
    ///
    /// # Errors
    /// The first refusal, or the failure that came before any step; the other parts are aborted.
    pub(crate) async fn start(
        service: &Service,
        parts: Vec<Part>,
        dialect: Dialect,
    ) -> Result<Self, ApiError> {
        let count = parts.len();
        let mut rest = SelectAll::new();
        let stops = stops(service, &parts).await?;
        for (index, (part, stops)) in parts.into_iter().zip(stops).enumerate() {
            let choice = submit(service, part, stops, dialect)?;
            let deltas = stream::unfold(choice, move |mut choice| async move {
                let delta = choice.next().await?;
                Some(((index, delta), choice))
            });
            rest.push(deltas.boxed());
        }
        let first = match rest.next().await {
            None => None,
            Some((index, delta)) => Some((index, delta?)),
        };
        Ok(Self {
            parts: count,
            first,
            rest,
        })
    }

    /// The deltas as they come; the first failure is the last item.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<(usize, Delta), ApiError>> + Send {
        let first = stream::iter(self.first.map(Ok));
        first.chain(self.rest.map(|(index, delta)| Ok((index, delta?))))
    }

    /// The whole answer of every part.
    ///
    /// # Errors
    /// The first failure of any part; the other parts are aborted.
    pub(crate) async fn collect(self) -> Result<Vec<Answer>, ApiError> {
        let answers = vec![Answer::default(); self.parts];
        self.collect_into(answers, Answer::extend).await
    }

    /// The whole answer of every part, each added to its element of `answers`.
    ///
    /// # Errors
    /// The first failure of any part; the other parts are aborted.
    pub(crate) async fn collect_into<A>(
        self,
        mut answers: Vec<A>,
        extend: impl Fn(&mut A, Delta),
    ) -> Result<Vec<A>, ApiError> {
        let mut deltas = std::pin::pin!(self.into_stream());
        while let Some(delta) = deltas.next().await {
            let (index, delta) = delta?;
            extend(&mut answers[index], delta);
        }
        Ok(answers)
    }
}

// === impl Part ===

impl Part {
    /// The parts of a request, item-major: `choices` of each item, with one element of `bootstrap`
    /// each.
    pub(crate) fn of(
        items: Vec<Item>,
        choices: u32,
        bootstrap: Vec<Option<BootstrapFields>>,
    ) -> Vec<Self> {
        let choices_of = |item: Item| {
            let item = Arc::new(item);
            (0..choices).map(move |choice| (Arc::clone(&item), choice))
        };
        let parts = items.into_iter().flat_map(choices_of);
        let part = |((item, choice), bootstrap)| Self {
            item,
            bootstrap,
            choice,
        };
        parts.zip(bootstrap).map(part).collect()
    }
}

// === impl Answer ===

impl Answer {
    pub(crate) fn extend(&mut self, delta: Delta) {
        self.text.extend(delta.texts);
        self.token_ids.extend(delta.token_ids);
        self.logprobs.extend(delta.logprobs);
        self.prompt_logprobs.extend(delta.prompt_logprobs);
        self.cached_tokens = self.cached_tokens.max(delta.cached_tokens);
        self.spec_verify_ct = delta.spec_verify_ct.max(self.spec_verify_ct);
        self.finish = delta.finish.or(self.finish.take());
    }
}

/// The compiled expressions of each part; parts that share their parameters share them.
async fn stops(service: &Service, parts: &[Part]) -> Result<Vec<StopRegex>, ApiError> {
    let mut stops: Vec<StopRegex> = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let sampling = &part.item.sampling;
        let before = index
            .checked_sub(1)
            .map(|before| &parts[before].item.sampling);
        let is_shared = before.is_some_and(|before| Arc::ptr_eq(before, sampling));
        stops.push(match stops.last().filter(|_| is_shared) {
            Some(shared) => shared.clone(),
            None => service.stop_regex(&sampling.stop_regex).await?,
        });
    }
    Ok(stops)
}

fn submit(
    service: &Service,
    part: Part,
    stops: StopRegex,
    dialect: Dialect,
) -> Result<Choice, ApiError> {
    let Part {
        item,
        bootstrap,
        choice,
    } = part;
    if let Some(bootstrap) = &bootstrap {
        traced::note_room(bootstrap.bootstrap_room);
    }
    let context_length = service.engine.info().context_length;
    let mut sampling = item
        .sampling
        .for_prompt(item.input_ids.len(), context_length);
    sampling.stop_regex = stops;
    let max_new_tokens = sampling.max_new_tokens.unwrap_or(1);
    let submitted = service.engine.submit(GenerateRequest {
        rid: item.rid.clone(),
        input_ids: item.input_ids.clone(),
        sampling,
        logprobs: item.logprobs.clone(),
        grammar: item.grammar.clone(),
        bootstrap,
        choice,
    });
    let tokens = submitted.map_err(|why| dialect.refusal(&why, max_new_tokens))?;
    Ok(Choice::new(
        tokens,
        service.engine.tokenizer(),
        &item.sampling,
    ))
}
