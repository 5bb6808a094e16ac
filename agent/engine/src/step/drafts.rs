//! `DraftStepBuilder`: steps of a draft model, over requests that another model serves.

use super::lists::Lists;
use super::sampling::Ahead;
use super::{StepId, StepPlan};
use crate::kvcache::ReqPoolIdx;
use crate::kvcache::req_to_token::ReqToTokenPool;
use crate::req::Req;
use std::ops::Range;

/// Builds one step after the other; keeps the lists' memory.
#[derive(Debug, Default)]
pub(crate) struct DraftStepBuilder {
    last: StepId,
    lists: Lists,
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
            lists.draw(req, Ahead::Drafts(&[]));
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
        self.lists.draw(req, Ahead::Drafts(drafts));
        let end = req.tokens.len() + drafts.len();
        self.lists
            .push_places(&(end - 1..end), req_to_token, idx, |_| true);
    }

    /// The step, if it computes anything.
    pub(crate) fn finish(&mut self) -> Option<StepPlan> {
        if self.lists.is_empty() {
            return None;
        }
        self.last.0 += 1;
        let stride = self.lists.longest_pages();
        Some(self.lists.take_plan(self.last, stride, None))
    }
}
