//! `Batch`: the requests of one step, each with the number of its tokens to compute. Prefill chunks
//! and decode steps differ only in that number.

use crate::engine::TokenLogprob;
use crate::req::Req;
use std::ops::Range;

#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) rows: Vec<BatchRow>,
}

/// A request in a step. Its pages hold `req.kv_len() + extend_len` tokens.
#[derive(Debug)]
pub(crate) struct BatchRow {
    pub(crate) req: Req,
    pub(crate) extend_len: usize,
}

/// The result of a step for a row.
#[derive(Debug, Default)]
pub(crate) struct RowOutput {
    /// Of the prompt tokens after the computed ones, if requested.
    pub(crate) prompt_logprobs: Vec<TokenLogprob>,
    pub(crate) sampled: Sampled,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) enum Sampled {
    /// The prompt has more chunks to come.
    #[default]
    NotYet,
    Token(TokenLogprob),
    /// No logit is finite: the model or its weights are broken for this input.
    NotFinite,
}

// === impl Batch ===

impl Batch {
    /// Whether every request computes one token and samples one: a decode step.
    pub(crate) fn is_decode(&self) -> bool {
        let is_decode =
            |row: &BatchRow| row.samples() && row.extend_len == 1 && row.req.output_len() > 0;
        self.rows.iter().all(is_decode)
    }
}

// === impl BatchRow ===

impl BatchRow {
    /// A step for every token that has no KV yet.
    pub(crate) fn whole(req: Req) -> Self {
        let extend_len = req.extend_len();
        Self { req, extend_len }
    }

    /// Positions that the step computes.
    pub(crate) fn positions(&self) -> Range<usize> {
        self.req.kv_len()..self.req.kv_len() + self.extend_len
    }

    /// Whether the step reaches the request's last token, so that the next one is sampled.
    pub(crate) fn samples(&self) -> bool {
        self.extend_len == self.req.extend_len()
    }

    /// Whether the request continues after the step, unless the sampled token ends it.
    pub(crate) fn may_go_on(&self) -> bool {
        self.req.remaining_len() > 1
    }

    /// Positions of the step whose logits yield a prompt logprob: the next token is the prompt's.
    pub(crate) fn prompt_logprob_positions(&self) -> Range<usize> {
        let Some(from) = self.req.prompt_logprobs_from() else {
            return 0..0;
        };
        let positions = self.positions();
        let end = positions.end.min(self.req.prompt_len - 1);
        from.max(positions.start).min(end)..end
    }
}
