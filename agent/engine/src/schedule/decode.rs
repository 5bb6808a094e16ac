//! `RunningBatch`: requests that produce one token per step.

use crate::batch::{Batch, BatchRow};
use crate::engine::RequestId;
use crate::kvcache::pool::KvCache;
use crate::req::Req;
use crate::schedule::retract;

#[derive(Debug, Default)]
pub(crate) struct RunningBatch {
    reqs: Vec<Req>,
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
        self.reqs.iter()
    }

    pub(crate) fn push(&mut self, req: Req) {
        self.reqs.push(req);
    }

    pub(crate) fn extend(&mut self, reqs: impl IntoIterator<Item = Req>) {
        self.reqs.extend(reqs);
    }

    pub(crate) fn take(&mut self, id: RequestId) -> Option<Req> {
        let place = self.reqs.iter().position(|req| req.id == id)?;
        Some(self.reqs.remove(place))
    }

    pub(crate) fn take_all(&mut self) -> Vec<Req> {
        std::mem::take(&mut self.reqs)
    }

    /// The request that must give up its pages so that the others can continue, if one must.
    pub(crate) fn pop_victim(&mut self, cache: &KvCache) -> Option<Req> {
        let short = |req: &Req| {
            let kv = req.kv.as_ref().expect("a running request holds pages");
            cache.pages_short(kv, req.tokens.len())
        };
        let short: usize = self.iter().map(short).sum();
        if short <= cache.available_pages() {
            return None;
        }
        retract::victim(&self.reqs).map(|place| self.reqs.remove(place))
    }

    /// The requests of a step that was launched early, without those that have ended since.
    pub(crate) fn resume(&mut self, ids: &mut dyn Iterator<Item = RequestId>) -> Batch {
        let rows = ids.filter_map(|id| self.take(id)).map(BatchRow::whole);
        Batch {
            rows: rows.collect(),
        }
    }

    /// All requests with pages for one more token each; [`Self::pop_victim`] has made room.
    pub(crate) fn next_rows(&mut self, cache: &mut KvCache) -> Vec<BatchRow> {
        for req in &self.reqs {
            let kv = req.kv.as_ref().expect("a running request holds pages");
            assert!(
                cache.try_extend(kv, req.tokens.len()),
                "victims have made room"
            );
        }
        self.take_all().into_iter().map(BatchRow::whole).collect()
    }
}
