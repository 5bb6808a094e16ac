//! `Active`: a request with a row and pages, and how far steps have got with it:
//!
//! ```text
//! tokens   [ prompt ............ | answer ... | drawing ]
//! KV       [ kv.len ...... )                             known to be there
//! handed   [ kv.len ...... handed )                      steps in flight compute these
//! to do                           [ ................... ] todo_len()
//! ```
//! A token that a step in flight draws is not known yet; the step right after may still compute its position, since the
//! device carries the token over. A prefill chunk hands over many positions, a decode step one, or one and those of its
//! drafts; what is handed over shrinks then to what was right.

use crate::kvcache::pool::ReqKv;
use crate::req::Req;
use crate::speculate::ReqDrafts;
use crate::speculate::last_entry::LastEntry;
use crate::step::StepRow;
use crate::step::carried::{Carried, StepId};

/// A request that steps compute, with what its mode keeps beside it.
#[derive(Debug)]
pub(crate) struct Active<T = ()> {
    pub(crate) req: Req,
    pub(crate) kv: ReqKv,
    pub(crate) with: T,
    /// Tokens whose KV a draft model has, in the same pages.
    pub(crate) draft_len: usize,
    handed: usize,
    /// Tokens that steps in flight draw.
    drawing: usize,
    last_step: Option<StepId>,
    /// Where the token lies that was drawn last.
    drawn: Option<Carried>,
    /// A step in flight draws an unknown number of tokens.
    verifying: bool,
}

// === impl Active ===

impl<T> Active<T> {
    /// A request whose first `kv.len` tokens have KV.
    pub(crate) fn new(req: Req, kv: ReqKv, with: T) -> Self {
        Self {
            handed: kv.len,
            req,
            kv,
            with,
            draft_len: 0,
            drawing: 0,
            last_step: None,
            drawn: None,
            verifying: false,
        }
    }

    /// The request by itself, and what its mode kept beside it.
    pub(crate) fn without(self) -> (Active, T) {
        let Self {
            req,
            kv,
            with,
            draft_len,
            handed,
            drawing,
            last_step,
            drawn,
            verifying,
        } = self;
        let active = Active {
            req,
            kv,
            with: (),
            draft_len,
            handed,
            drawing,
            last_step,
            drawn,
            verifying,
        };
        (active, with)
    }

    /// The first position that no step has taken.
    pub(crate) fn handed(&self) -> usize {
        self.handed
    }

    /// Tokens that steps in flight draw.
    pub(crate) fn drawing(&self) -> usize {
        self.drawing
    }

    /// Tokens, those that steps in flight draw included.
    pub(crate) fn len(&self) -> usize {
        self.req.tokens.len() + self.drawing
    }

    /// Positions that a step must compute before the next token can be drawn.
    pub(crate) fn todo_len(&self) -> usize {
        self.len() - self.handed
    }

    /// The last step that computes some of it.
    pub(crate) fn last_step(&self) -> Option<StepId> {
        self.last_step
    }

    /// Whether the request continues after the tokens that are being drawn, unless they end it.
    pub(crate) fn goes_on(&self) -> bool {
        self.drawing == 0 || self.len() < self.req.len_max
    }

    /// Whether its next step needs a token that is not known yet: to penalise it, for its grammar, or to find drafts of
    /// what comes after.
    pub(crate) fn needs_outcome(&self) -> bool {
        let wants_drafts = self.req.drafts.as_ref().is_some_and(ReqDrafts::are_on);
        let follows = self.req.penalties.are_on() || self.req.grammar.is_some();
        self.drawing > 0 && (self.verifying || wants_drafts || follows)
    }

    /// The token of its first position to do, if a step in flight draws it.
    pub(crate) fn carried(&self) -> Option<Carried> {
        self.drawn.filter(|_| self.drawing > 0)
    }

    /// Hands the next `len` positions to `step`. The row draws if that is all there is to do.
    pub(crate) fn hand(&mut self, len: usize, step: StepId) -> StepRow {
        let positions = self.handed..self.handed + len;
        let draws = positions.end == self.len();
        self.handed = positions.end;
        self.last_step = Some(step);
        StepRow {
            id: self.req.id,
            prompt_logprobs: self.req.prompt_logprob_positions(&positions).len(),
            positions,
            draws,
            drafts: Vec::new(),
            asked: self.req.token_ids_logprob().len(),
        }
    }

    /// Hands the last token's position to `step`, and those of `drafts` behind it.
    ///
    /// # Panics
    /// If that is not all there is to do, or the last token is not known.
    pub(crate) fn hand_drafts(&mut self, drafts: Vec<u32>, step: StepId) -> StepRow {
        assert!(
            self.drawing == 0 && self.todo_len() == 1,
            "drafts follow a known token whose position is the next"
        );
        let positions = self.handed..self.handed + 1 + drafts.len();
        self.handed = positions.end;
        self.last_step = Some(step);
        self.verifying = true;
        StepRow {
            id: self.req.id,
            prompt_logprobs: 0,
            positions,
            draws: true,
            drafts,
            asked: self.req.token_ids_logprob().len(),
        }
    }

    /// The step that took the last positions draws a token, which will be its output number `output`.
    pub(crate) fn draw(&mut self, step: StepId, output: usize) {
        self.drawing += 1;
        self.drawn = Some(Carried { step, output });
    }

    /// A step has ended that got `drawn` tokens, if the row draws.
    pub(crate) fn settled(&mut self, row: &StepRow, drawn: usize) {
        self.drawing -= usize::from(row.draws);
        if row.draws {
            // Of the last token that was accepted; before any other in flight settles, of the last that was drawn.
            let last = self.drawn.zip(drawn.checked_sub(1));
            let last = last.map(|(first, place)| Carried {
                output: first.output + place,
                ..first
            });
            self.req.set_last_entry(last.map(LastEntry::Output));
        }
        if !row.drafts.is_empty() {
            self.handed = row.computed_to(drawn);
            self.verifying = false;
            self.draft_len = self.draft_len.min(self.handed);
        }
    }
}
