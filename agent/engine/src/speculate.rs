//! Speculation: behind a request's last token a step computes drafts, tokens that it may get next, and draws at each of
//! these places with the noise of that place. Drafts are accepted as far as they are what was drawn, so answers are
//! those of a run without drafts, token for token. Here is who proposes drafts ([`Drafter`]) and when they pay
//! ([`switch`]).
//!
//! SGLang's `SpeculativeAlgorithm`. Sources: Leviathan et al., "Fast Inference from Transformers via Speculative
//! Decoding" (2023), with drafts that are point masses; docs/decisions/0086.

pub(crate) mod jumps;
pub(crate) mod last_entry;
pub(crate) mod layer;
pub(crate) mod model;
pub(crate) mod ngram;
pub(crate) mod row_cost;
pub(crate) mod switch;

use last_entry::LastEntry;
use std::fmt::{Debug, Formatter, Result as FmtResult};
use std::sync::Arc;
use switch::{Lately, Switch};

/// Proposes what comes next in one request.
pub(crate) trait Drafter: Debug + Send {
    /// Up to `max` tokens that may come after `tokens`, which grow from call to call; none if it has no idea.
    fn propose(&mut self, tokens: &[u32], max: usize) -> Vec<u32>;
}

/// How an engine speculates.
#[derive(Clone)]
pub(crate) struct Speculation {
    /// Drafts per request and step, at most.
    pub(crate) num_steps: usize,
    pub(crate) source: DraftSource,
    /// Without drafts a step would be launched before the outcome of the last: looking for them is not free.
    pub(crate) overlaps: bool,
}

/// Whose drafts an engine takes.
#[derive(Clone)]
pub(crate) enum DraftSource {
    /// Those of a drafter of each request's own. Whether they pay follows from its text, so no other request learns it.
    Drafters(Arc<dyn Fn() -> Box<dyn Drafter> + Send + Sync>),
    /// Those of a [`model::DraftModel`] or a [`layer::DraftLayer`] for all, and how they paid of late.
    Model(Lately),
}

/// The drafts of one request.
#[derive(Debug)]
pub(crate) struct ReqDrafts {
    num_steps: usize,
    overlaps: bool,
    /// None where a model or its own layer drafts for all.
    drafter: Option<Box<dyn Drafter>>,
    switch: Switch,
    /// The step to come was to have drafts, and none were found.
    missed: bool,
    verify_ct: u32,
    /// What a draft layer made of the request's last entry, if that is known.
    pub(crate) last_entry: Option<LastEntry>,
}

// === impl Speculation ===

impl Speculation {
    pub(crate) fn req_drafts(&self) -> ReqDrafts {
        let (drafter, lately) = match &self.source {
            DraftSource::Drafters(make) => (Some(make()), Lately::default()),
            DraftSource::Model(lately) => (None, lately.clone()),
        };
        ReqDrafts {
            num_steps: self.num_steps,
            overlaps: self.overlaps,
            drafter,
            switch: lately.switch(),
            missed: false,
            verify_ct: 0,
            last_entry: None,
        }
    }
}

impl Debug for Speculation {
    fn fmt(&self, f: &mut Formatter<'_>) -> FmtResult {
        f.debug_struct("Speculation")
            .field("num_steps", &self.num_steps)
            .finish_non_exhaustive()
    }
}

// === impl ReqDrafts ===

impl ReqDrafts {
    /// Whether drafts are looked for once the next token is known.
    pub(crate) fn are_on(&self) -> bool {
        self.switch.is_on()
    }

    /// A step has drawn tokens over drafts that were not these.
    pub(crate) fn jumped(&mut self) {
        self.verify_ct = self.verify_ct.saturating_add(1);
    }

    /// Steps that have drawn tokens of the answer, the prompt's aside: SGLang's `spec_verify_ct`.
    pub(crate) fn verify_ct(&self) -> u32 {
        self.verify_ct
    }

    /// How many of `max` drafts are wanted.
    pub(crate) fn wanted(&self, max: usize) -> usize {
        if self.are_on() {
            max.min(self.num_steps)
        } else {
            0
        }
    }

    /// Up to `max` drafts of what comes after `tokens`, by the request's own drafter.
    pub(crate) fn propose(&mut self, tokens: &[u32], max: usize) -> Vec<u32> {
        let max = self.wanted(max);
        let Some(drafter) = self.drafter.as_mut().filter(|_| max > 0) else {
            return Vec::new();
        };
        let mut drafts = drafter.propose(tokens, max);
        drafts.truncate(max);
        self.missed = drafts.is_empty();
        drafts
    }

    /// A step has drawn `drawn` tokens over `drafts` drafts. `row_cost` is the cost of a draft's row, as a share of
    /// that of a token without drafts.
    pub(crate) fn verified(&mut self, drafts: usize, drawn: usize, row_cost: f64) {
        self.verify_ct = self.verify_ct.saturating_add(1);
        let accepted = drawn.saturating_sub(1);
        let missed = std::mem::take(&mut self.missed);
        if !self.are_on() {
            self.switch.rest(drawn);
        } else if drafts > 0 {
            self.switch.verified(drafts, accepted, row_cost);
        } else if missed && self.overlaps {
            // The step waited for the last one and gained nothing, as with a wrong draft.
            self.switch.verified(1, 0, row_cost);
        }
    }
}
