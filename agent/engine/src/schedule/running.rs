//! `RunningBatch`: requests that produce one token per step. All their known tokens are computed or in flight.

use super::{drafts, retract, snapshots};
use crate::active::Active;
use crate::command::RequestId;
use crate::kvcache::pool::KvCache;
use crate::kvcache::spaces::PerSpace;
use crate::req::Req;
use crate::resources::Resources;

#[derive(Debug, Default)]
pub(crate) struct RunningBatch {
    /// Steps have their rows in this order.
    reqs: Vec<Active>,
    /// Where the last lookup ended: the next one is most likely right behind it.
    cursor: usize,
}

// === impl RunningBatch ===

impl RunningBatch {
    pub(crate) fn len(&self) -> usize {
        self.reqs.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.reqs.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Req> {
        self.actives().map(|active| &active.req)
    }

    pub(crate) fn actives(&self) -> impl Iterator<Item = &Active> {
        self.reqs.iter()
    }

    pub(crate) fn extend(&mut self, reqs: impl IntoIterator<Item = Active>) {
        self.reqs.extend(reqs);
    }

    pub(crate) fn get_mut(&mut self, id: RequestId) -> Option<&mut Active> {
        let place = self.find(id)?;
        self.cursor = place + 1;
        Some(&mut self.reqs[place])
    }

    pub(crate) fn take(&mut self, id: RequestId) -> Option<Active> {
        let place = self.find(id)?;
        self.cursor = place;
        Some(self.reqs.remove(place))
    }

    pub(crate) fn take_all(&mut self) -> Vec<Active> {
        std::mem::take(&mut self.reqs)
    }

    fn find(&self, id: RequestId) -> Option<usize> {
        let (before, after) = self.reqs.split_at(self.cursor.min(self.reqs.len()));
        let is_it = |active: &Active| active.req.id == id;
        let behind = after.iter().position(is_it);
        behind
            .map(|place| before.len() + place)
            .or_else(|| before.iter().position(is_it))
    }

    /// Whether some request takes a step.
    pub(crate) fn goes_on(&self) -> bool {
        self.reqs.iter().any(Active::goes_on)
    }

    /// Whether a request's next step needs a token that is still being drawn.
    pub(crate) fn needs_outcome(&self) -> bool {
        self.reqs
            .iter()
            .any(|active| active.goes_on() && active.needs_outcome())
    }

    /// Whether the pool has no pages for the next token of every request that goes on.
    pub(crate) fn is_short(&self, cache: &KvCache) -> bool {
        let going_on = self.reqs.iter().filter(|active| active.goes_on());
        let short = going_on.map(|active| cache.pages_short(&active.kv, active.len()));
        !short.sum::<PerSpace>().fits(cache.available_pages())
    }

    /// The request that must give up its pages so that the others can continue, if one must.
    pub(crate) fn pop_victim(&mut self, cache: &KvCache) -> Option<Active> {
        if !self.is_short(cache) {
            return None;
        }
        retract::victim(&self.reqs).map(|place| self.reqs.remove(place))
    }

    /// Requests that take a step.
    pub(crate) fn going_on_len(&self) -> usize {
        self.reqs.iter().filter(|active| active.goes_on()).count()
    }

    /// Gives every request that goes on a page for its next token.
    ///
    /// # Panics
    /// If there are too few pages.
    pub(crate) fn reserve(&self, cache: &mut KvCache) {
        for active in self.reqs.iter().filter(|active| active.goes_on()) {
            assert!(
                cache.try_extend(&active.kv, active.len()),
                "victims have made room"
            );
        }
    }

    /// Adds every request that goes on to the step, and up to `draft_rows` drafts. Each has its page; drafts get those
    /// that are left.
    ///
    /// # Panics
    /// If an outcome is needed first.
    pub(crate) fn push_rows(&mut self, resources: &mut Resources, draft_rows: usize) {
        let drafts = drafts::drafts(&mut self.reqs, resources, draft_rows);
        let Resources { cache, step, .. } = resources;
        let going_on = self.reqs.iter_mut().filter(|active| active.goes_on());
        for (active, drafts) in going_on.zip(drafts) {
            if drafts.is_empty() {
                let snapshots = snapshots::keep(cache, active, 1);
                step.push(active, 1, &snapshots, cache.req_to_token());
            } else {
                step.push_drafts(active, drafts, cache.req_to_token());
            }
        }
    }
}
