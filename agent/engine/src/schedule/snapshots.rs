//! Where a step keeps a request's recurrent state for later requests. A prefix can be gone on from only where its state
//! was kept, and states are large, so they are kept where a later request most likely parts: at the prompt's end, where
//! this request parted from an earlier one, and at the ends of steps now and then on long stretches.

use crate::active::Active;
use crate::kvcache::pool::KvCache;
use crate::kvcache::pool::state::Snapshot;
use std::ops::Range;

/// SGLang's `--mamba-track-interval`: tokens, at least, between two states on a stretch without branches.
const INTERVAL: usize = 256;

/// What a request's places follow from.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    page_size: usize,
    prompt_len: usize,
    branch_at: Option<usize>,
    kept_len: usize,
}

/// How many of `drafts` drafts a step computes: it ends before the next place where a state is kept, so that a step
/// without drafts reaches that place.
pub(crate) fn before_place<T>(cache: &KvCache, active: &Active<T>, drafts: usize) -> usize {
    let from = active.handed();
    let places = places(cache, active, 1 + drafts);
    let first = places.first().copied().unwrap_or(usize::MAX);
    drafts.min(first.saturating_sub(from + 2))
}

/// Slots for the states that the step over the request's next `len` positions keeps, as far as there are free ones.
pub(crate) fn keep<T>(cache: &mut KvCache, active: &mut Active<T>, len: usize) -> Vec<Snapshot> {
    let places = places(cache, active, len);
    let keep = |place| cache.snapshot(&mut active.kv, place);
    places.into_iter().map_while(keep).collect()
}

/// Lengths, ascending, after which a step over the request's next `len` positions keeps the state.
fn places<T>(cache: &KvCache, active: &Active<T>, len: usize) -> Vec<usize> {
    if !cache.keeps_states() {
        return Vec::new();
    }
    let from = active.handed();
    let state = active.kv.state.as_ref();
    let state = state.expect("the model has recurrent state");
    let stretch = Stretch {
        page_size: cache.page_size(),
        prompt_len: active.req.prompt_len,
        branch_at: state.branch_at(),
        kept_len: state.kept_len(),
    };
    stretch.places(&(from..from + len))
}

// === impl Stretch ===

impl Stretch {
    /// Lengths, ascending, after which a step over `positions` keeps the state.
    fn places(self, positions: &Range<usize>) -> Vec<usize> {
        let Self {
            page_size,
            prompt_len,
            branch_at,
            kept_len,
        } = self;
        let aligned = |len: usize| len / page_size * page_size;
        let end = aligned(positions.end);
        let due = (end >= kept_len + INTERVAL).then_some(end);
        let mut places: Vec<usize> = [branch_at, Some(aligned(prompt_len)), due]
            .into_iter()
            .flatten()
            .filter(|place| (positions.start + 1..=positions.end).contains(place))
            .filter(|&place| place > kept_len)
            .collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

#[cfg(test)]
mod tests;
