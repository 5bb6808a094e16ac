//! One choice of one item in progress: the engine's tokens become text.

use super::error::ApiError;
use super::sampling::Sampling;
use super::stop_string_filter::StopStringFilter;
use pd_engine::engine::{FinishReason, RequestStream, StopMatch, TokenEvent, TokenLogprob};
use pd_engine::text::{Detokenizer, Tokenizer};
use std::sync::Arc;

/// An answer in progress. Dropping it aborts the request in the engine.
#[derive(Debug)]
pub(crate) struct Choice {
    tokens: RequestStream,
    detokenizer: Detokenizer,
    text: StopStringFilter,
    no_stop_trim: bool,
}

/// What one step added.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Delta {
    /// What each token added; behind the last one, what was held back until the end.
    pub(crate) texts: Vec<String>,
    pub(crate) token_ids: Vec<u32>,
    pub(crate) logprobs: Vec<TokenLogprob>,
    pub(crate) prompt_logprobs: Vec<TokenLogprob>,
    pub(crate) cached_tokens: u32,
    pub(crate) spec_verify_ct: Option<u32>,
    /// Set in the last one.
    pub(crate) finish: Option<Finish>,
}

/// How a successful answer ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    Stop(StopMatch),
    Length,
}

// === impl Choice ===

impl Choice {
    pub(crate) fn new(
        tokens: RequestStream,
        tokenizer: &Arc<Tokenizer>,
        sampling: &Sampling,
    ) -> Self {
        let no_stop_trim = sampling.no_stop_trim;
        Self {
            tokens,
            detokenizer: Detokenizer::new(
                Arc::clone(tokenizer),
                sampling.params.skip_special_tokens,
            )
            .showing(sampling.params.shown_special_ids.clone()),
            text: StopStringFilter::new(sampling.params.stop.clone(), no_stop_trim),
            no_stop_trim,
        }
    }

    /// The next step, `None` after the last.
    ///
    /// # Errors
    /// When the engine ends the request without its answer: 503 if another worker may succeed.
    pub(crate) async fn next(&mut self) -> Option<Result<Delta, ApiError>> {
        let event = self.tokens.recv().await?;
        Some(self.read(event))
    }

    fn read(&mut self, event: TokenEvent) -> Result<Delta, ApiError> {
        let finish = match event.finish {
            None => None,
            Some(FinishReason::Length) => Some(Finish::Length),
            Some(FinishReason::Stop { matched }) => Some(Finish::Stop(matched)),
            Some(FinishReason::Abort { reason, retriable }) => {
                return Err(if retriable {
                    ApiError::retriable(reason)
                } else {
                    ApiError::internal(reason)
                });
            }
        };
        Ok(Delta {
            texts: self.decode(&event.token_ids, finish.as_ref()),
            token_ids: event.token_ids,
            logprobs: event.logprobs,
            prompt_logprobs: event.prompt_logprobs,
            cached_tokens: event.cached_tokens,
            spec_verify_ct: event.spec_verify_ct,
            finish,
        })
    }

    fn decode(&mut self, token_ids: &[u32], finish: Option<&Finish>) -> Vec<String> {
        let shown = match (finish, token_ids) {
            (Some(Finish::Stop(StopMatch::Token(id))), [shown @ .., last])
                if last == id && !self.no_stop_trim =>
            {
                shown
            }
            _ => token_ids,
        };
        let decoded = shown.iter().map(|&id| self.detokenizer.push(id));
        let mut decoded: Vec<String> = decoded.collect();
        let surplus = finish.and_then(Finish::surplus_bytes);
        if let (Some(surplus), Some(last)) = (surplus, decoded.last_mut()) {
            let end = last.len().saturating_sub(surplus);
            last.truncate(last.floor_char_boundary(end));
        }
        let mut texts: Vec<String> = decoded.iter().map(|text| self.text.push(text)).collect();
        if let Some(finish) = finish {
            // Of a character behind a match there may be a part.
            let held = self.detokenizer.finish();
            let held = if surplus.is_none() { held.as_str() } else { "" };
            texts.push(self.text.finish(held, finish.matched_text()));
        }
        texts
    }
}

// === impl Delta ===

impl Delta {
    /// What the step added.
    pub(crate) fn text(&self) -> String {
        self.texts.concat()
    }
}

// === impl Finish ===

impl Finish {
    /// The stop string that ended the answer.
    fn matched_text(&self) -> Option<&str> {
        match self {
            Self::Stop(StopMatch::Text(text)) => Some(text),
            Self::Stop(StopMatch::Token(_) | StopMatch::Pattern { .. }) | Self::Length => None,
        }
    }

    /// The token that ended the answer and is not part of its text.
    pub(crate) fn matched_token(&self) -> Option<u32> {
        match self {
            Self::Stop(StopMatch::Token(id)) => Some(*id),
            Self::Stop(StopMatch::Text(_) | StopMatch::Pattern { .. }) | Self::Length => None,
        }
    }

    /// What the last token adds behind the match that ended the answer.
    fn surplus_bytes(&self) -> Option<usize> {
        match self {
            Self::Stop(StopMatch::Pattern { surplus_bytes, .. }) => Some(*surplus_bytes),
            Self::Stop(StopMatch::Text(_) | StopMatch::Token(_)) | Self::Length => None,
        }
    }
}
