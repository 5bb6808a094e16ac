//! Steps that draw drafts: [`DraftStepBuilder`] of a draft model, over requests that another model serves;
//! [`ChainStepBuilder`] of the model's own draft layer.

use super::lists::{Lists, to_u32};
use super::{Drafting, StepPlan};
use crate::kvcache::ReqPoolIdx;
use crate::kvcache::req_to_token::ReqToTokenPool;
use crate::req::Req;
use std::ops::Range;

/// Builds one step after the other; keeps the lists' memory.
#[derive(Debug, Default)]
pub(crate) struct DraftStepBuilder {
    lists: Lists,
}

/// The same of a draft layer.
#[derive(Debug, Default)]
pub(crate) struct ChainStepBuilder {
    lists: Lists,
}

/// Where the state is that a draft follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DraftState<'a> {
    /// In this row of the last step's outputs.
    Output(usize),
    /// Computed elsewhere.
    Given(&'a [u8]),
}

// === impl DraftStepBuilder ===

impl DraftStepBuilder {
    /// Adds the request's tokens at `positions`; draws a draft if they reach its last one.
    pub(crate) fn push_tokens(
        &mut self,
        req: &Req,
        positions: Range<usize>,
        idx: ReqPoolIdx,
        req_to_token: &ReqToTokenPool,
    ) {
        let lists = &mut self.lists;
        lists.token_ids.extend(&req.tokens[positions.clone()]);
        if positions.end == req.tokens.len() {
            lists.draw_draft(req, &[]);
        }
        lists.push_places(&positions, req_to_token, idx, |_| true);
    }

    /// Adds the last of `drafts`, which come after the request's tokens; draws the next.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn push_draft(
        &mut self,
        req: &Req,
        drafts: &[u32],
        idx: ReqPoolIdx,
        req_to_token: &ReqToTokenPool,
    ) {
        let draft = drafts.last().expect("a draft follows another");
        self.lists.token_ids.push(*draft);
        self.lists.draw_draft(req, drafts);
        let end = req.tokens.len() + drafts.len();
        self.lists
            .push_places(&(end - 1..end), req_to_token, idx, |_| true);
    }

    /// The step, if it computes anything.
    pub(crate) fn finish(&mut self) -> Option<StepPlan> {
        if self.lists.is_empty() {
            return None;
        }
        let stride = self.lists.longest_pages();
        Some(self.lists.take_plan(stride, None))
    }
}

// === impl ChainStepBuilder ===

impl ChainStepBuilder {
    /// Draws the first draft behind the request's tokens. States that are given lie behind `outputs` others.
    pub(crate) fn push_first(&mut self, req: &Req, state: DraftState<'_>, outputs: usize) {
        let lists = &mut self.lists;
        let row = match state {
            DraftState::Output(output) => output,
            DraftState::Given(bytes) => {
                let words = bytes.as_chunks::<4>().0;
                let row = outputs + lists.draft_states.len() / words.len().max(1);
                let words = words.iter().map(|word| u32::from_ne_bytes(*word));
                lists.draft_states.extend(words);
                row
            }
        };
        self.draw(req, row, &[]);
    }

    /// Adds the last of `drafts`, which come after the request's tokens and of which it was drawn in row `row` of the
    /// last step; draws the next. Its entry lies where the token before it does.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn push_next(
        &mut self,
        req: &Req,
        drafts: &[u32],
        row: usize,
        (idx, req_to_token): (ReqPoolIdx, &ReqToTokenPool),
    ) {
        let draft = drafts.last().expect("a draft follows another");
        self.lists.token_ids.push(*draft);
        self.draw(req, row, drafts);
        let end = req.tokens.len() + drafts.len() - 1;
        self.lists
            .push_places(&(end - 1..end), req_to_token, idx, |_| true);
    }

    fn draw(&mut self, req: &Req, row: usize, drafts: &[u32]) {
        let lists = &mut self.lists;
        lists.logit_rows.push(to_u32(lists.logit_rows.len()));
        lists.draft_rows.push(to_u32(row));
        lists.sampling.push_draft(req, drafts);
    }

    /// The step, if it draws anything.
    pub(crate) fn finish(&mut self) -> Option<StepPlan> {
        if self.lists.is_empty() {
            return None;
        }
        let drafting = if self.lists.token_ids.is_empty() {
            Drafting::First
        } else {
            Drafting::Next
        };
        let stride = self.lists.longest_pages();
        let mut plan = self.lists.take_plan(stride, None);
        plan.shape.drafting = drafting;
        Some(plan)
    }
}
