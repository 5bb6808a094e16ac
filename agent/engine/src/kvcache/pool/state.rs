//! The recurrent state of requests: slots that steps read and write, and those in which they keep it for others.

use super::{KvCache, Prefixes, ReqKv};
use crate::kvcache::StateSlot;
use crate::kvcache::allocator::{Allocator, Owner};
use crate::kvcache::radix::{NodeId, StateMatch};
use std::ops::Range;

/// A request's state.
#[derive(Debug)]
pub(crate) struct ReqState {
    /// Holds the state after the last position that a step took; each step writes it.
    working: StateSlot,
    /// Where the request begins, until its first step has read it.
    pub(super) source: Option<StateSource>,
    /// A step, or a transfer, has begun to write the working slot.
    pub(super) begun: bool,
    snapshots: Vec<Snapshot>,
    /// For the states after a step's rows but the last, of which one may become the working slot.
    for_drafts: Vec<StateSlot>,
    /// The longest prefix whose state was kept or found.
    kept_len: usize,
    /// Cached pages go on to here without a state.
    branch_at: Option<usize>,
}

/// A state of the cache, locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateSource {
    node: NodeId,
    slot: StateSlot,
}

/// The state after the first `len` tokens, kept for the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) len: usize,
    pub(crate) slot: StateSlot,
}

/// No slot is free, nor can one be had by eviction.
pub(super) struct NoSlot;

// === impl ReqState ===

impl ReqState {
    /// The slot that holds the state after the last position, for a transfer.
    pub(crate) fn working(&self) -> StateSlot {
        self.working
    }

    /// Where the next step finds the state; `None`: it begins with zeros.
    pub(crate) fn read(&mut self) -> Option<StateSlot> {
        if std::mem::replace(&mut self.begun, true) {
            return Some(self.working);
        }
        self.source.map(|source| source.slot)
    }

    /// Where a step that begins behind `from` keeps the states after its first `rows` rows, in case that the drafts
    /// behind them are wrong. The request has that many slots for drafts.
    pub(crate) fn draft_snapshots(&self, from: usize, rows: usize) -> Vec<Snapshot> {
        let slots = self.for_drafts[..rows].iter();
        let snapshot = |(len, &slot)| Snapshot { len, slot };
        (from + 1..).zip(slots).map(snapshot).collect()
    }

    /// The step before drew `drawn` tokens over `drafts` drafts: the state after that many rows is the request's.
    pub(super) fn verified(&mut self, drafts: usize, drawn: usize) {
        if (1..=drafts).contains(&drawn) {
            std::mem::swap(&mut self.working, &mut self.for_drafts[drawn - 1]);
        }
    }

    /// The slots for more than `drafts` drafts.
    pub(super) fn take_spare(&mut self, drafts: usize) -> Vec<StateSlot> {
        self.for_drafts.split_off(drafts.min(self.for_drafts.len()))
    }

    /// Where cached pages end that have no state: worth keeping, if it is computed again.
    pub(crate) fn branch_at(&self) -> Option<usize> {
        self.branch_at
    }

    /// Tokens of the longest prefix whose state was kept for others, or found.
    pub(crate) fn kept_len(&self) -> usize {
        self.kept_len
    }

    /// Whether a state is kept for others that was reached by computing `positions`.
    pub(super) fn has_snapshot_in(&self, positions: Range<usize>) -> bool {
        self.snapshots
            .iter()
            .any(|snapshot| (positions.start + 1..=positions.end).contains(&snapshot.len))
    }

    /// The slots of all snapshots of what is computed but the longest.
    pub(super) fn take_older_snapshots(&mut self, computed: usize) -> Vec<StateSlot> {
        let mut due = self.take_snapshots(computed);
        due.sort_unstable_by_key(|snapshot| snapshot.len);
        self.snapshots.extend(due.pop());
        due.iter().map(|snapshot| snapshot.slot).collect()
    }

    /// The snapshots of what is computed.
    pub(super) fn take_snapshots(&mut self, computed: usize) -> Vec<Snapshot> {
        let due = |snapshot: &mut Snapshot| snapshot.len <= computed;
        self.snapshots.extract_if(.., due).collect()
    }

    pub(super) fn into_slots(self) -> (Vec<StateSlot>, Option<StateSource>) {
        let snapshots = self.snapshots.iter().map(|snapshot| snapshot.slot);
        let slots = std::iter::once(self.working).chain(snapshots);
        (slots.chain(self.for_drafts).collect(), self.source)
    }
}

// === impl ReqKv ===

impl ReqKv {
    /// Tokens whose pages were found or cached.
    pub(crate) fn cached_len(&self) -> usize {
        self.cached_len
    }

    /// Tokens to compute that have cached pages.
    pub(crate) fn held_len(&self) -> usize {
        self.cached_len - self.len
    }

    /// Whether a step that computes the position writes its keys and values; else they are cached.
    pub(crate) fn is_written(&self, position: usize) -> bool {
        position >= self.cached_len
    }

    /// The slot of the state after the last position that a step took, of a model with recurrent state.
    pub(crate) fn slot(&self) -> Option<StateSlot> {
        self.state.as_ref().map(ReqState::working)
    }
}

// === impl KvCache ===

impl KvCache {
    /// Whether the model has recurrent state.
    pub(crate) fn has_states(&self) -> bool {
        self.slots.is_some()
    }

    /// A slot in which a step keeps the request's state after `len` tokens, for the cache. `None`: nothing is cached,
    /// or no slot is free.
    pub(crate) fn snapshot(&mut self, kv: &mut ReqKv, len: usize) -> Option<Snapshot> {
        let slot = self.take_slot()?;
        let snapshot = Snapshot { len, slot };
        let state = kv.state.as_mut().expect("the model has recurrent state");
        state.kept_len = state.kept_len.max(len);
        state.snapshots.push(snapshot);
        Some(snapshot)
    }

    /// Takes slots for the states after drafts, of a model that has states, until the step is verified. Returns how many
    /// of `drafts` drafts it has them for.
    pub(crate) fn slots_for_drafts(&mut self, kv: &mut ReqKv, drafts: usize) -> usize {
        let Some(state) = &mut kv.state else {
            return drafts;
        };
        while state.for_drafts.len() < drafts {
            let Some(slot) = self.take_slot() else {
                return state.for_drafts.len();
            };
            state.for_drafts.push(slot);
        }
        drafts
    }

    /// Whether states of prefixes are kept for other requests.
    pub(crate) fn keeps_states(&self) -> bool {
        self.has_states() && self.prefixes == Prefixes::Computed
    }

    /// A state for a request that begins where one was found, of `cached_len` tokens whose pages are cached.
    pub(super) fn begin_state(
        &mut self,
        found: Option<StateMatch>,
        cached_len: usize,
    ) -> Result<Option<ReqState>, NoSlot> {
        if !self.has_states() {
            return Ok(None);
        }
        let found_len = found.map_or(0, |found| found.len);
        let source = found.map(|found| self.lock_source(found));
        let Some(working) = self.take_slot() else {
            self.unlock_source(source);
            return Err(NoSlot);
        };
        Ok(Some(ReqState {
            working,
            source,
            begun: false,
            snapshots: Vec::new(),
            for_drafts: Vec::new(),
            kept_len: found_len,
            branch_at: (cached_len > found_len).then_some(cached_len),
        }))
    }

    fn lock_source(&mut self, found: StateMatch) -> StateSource {
        let StateMatch { node, slot, len: _ } = found;
        self.radix.lock_state(node);
        StateSource { node, slot }
    }

    pub(super) fn unlock_source(&mut self, source: Option<StateSource>) {
        if let Some(source) = source {
            self.radix.unlock_state(source.node);
        }
    }

    /// Gives the cache the states of prefixes of `tokens` whose pages it has.
    pub(super) fn commit_states(&mut self, snapshots: Vec<Snapshot>, tokens: &[u32]) {
        for Snapshot { len, slot } in snapshots {
            let is_new = self.radix.insert_state(&tokens[..len], slot);
            let slots = self.slots.as_mut().expect("snapshots have slots");
            if is_new {
                slots.set(slot, Owner::Held, Owner::Cached);
            } else {
                slots.free(&[slot], Owner::Held);
            }
        }
    }

    pub(super) fn quarantine_slots(&mut self, taken: &[StateSlot]) {
        for &slot in taken {
            let slots = self.slots.as_mut().expect("slots come from an allocator");
            slots.set(slot, Owner::Held, Owner::Quarantined);
        }
    }

    pub(super) fn return_slots(&mut self, taken: &[StateSlot], from: Owner) {
        if let Some(slots) = &mut self.slots {
            slots.free(taken, from);
        }
    }

    /// A free slot, or that of a cached state which no request reads.
    fn take_slot(&mut self) -> Option<StateSlot> {
        if self.slots.as_ref().map_or(0, Allocator::free_len) == 0 {
            let evicted = self.radix.evict_states(1);
            self.return_slots(&evicted, Owner::Cached);
        }
        self.slots.as_mut()?.try_alloc_one()
    }
}
