//! `Batch`: the requests of one step, each with how many of its tokens are computed. Prefill
//! chunks and decode steps stand side by side; they differ in nothing but that number.

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

/// What a step found out about a row.
#[derive(Debug, Default)]
pub(crate) struct RowOutput {
    /// Of the prompt tokens after those computed, where asked for.
    pub(crate) prompt_logprobs: Vec<TokenLogprob>,
    pub(crate) drawn: Drawn,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) enum Drawn {
    /// The prompt has more chunks to come.
    #[default]
    NotYet,
    Token(TokenLogprob),
    /// No logit is finite: the model or its weights are broken for this input.
    NotFinite,
}

// === impl Batch ===

impl Batch {
    /// One token for every request, and one drawn: a decode step.
    pub(crate) fn is_decode(&self) -> bool {
        let is_decode =
            |row: &BatchRow| row.draws() && row.extend_len == 1 && row.req.output_len() > 0;
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

    /// The step reaches the request's last token, so the next one is drawn.
    pub(crate) fn draws(&self) -> bool {
        self.extend_len == self.req.extend_len()
    }

    /// The request goes on after the step, unless what is drawn ends it.
    pub(crate) fn may_go_on(&self) -> bool {
        self.req.remaining_len() > 1
    }

    /// Positions of the step whose logits tell a prompt logprob: the next token is the prompt's.
    pub(crate) fn prompt_logprob_positions(&self) -> Range<usize> {
        let Some(from) = self.req.prompt_logprobs_from() else {
            return 0..0;
        };
        let positions = self.positions();
        let end = positions.end.min(self.req.prompt_len - 1);
        from.max(positions.start).min(end)..end
    }
}
