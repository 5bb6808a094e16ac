//! `StateIndex`: the recurrent states at the ends of nodes, with locks and an order of eviction of their own.

use super::tree::NodeId;
use crate::kvcache::StateSlot;
use std::collections::{BTreeSet, HashMap};

#[derive(Debug, Default)]
pub(super) struct StateIndex {
    states: HashMap<NodeId, CachedState>,
    /// Unlocked states by last use.
    evictable: BTreeSet<(u64, NodeId)>,
}

#[derive(Debug)]
struct CachedState {
    slot: StateSlot,
    /// Requests whose first step has yet to read it.
    locks: u32,
    last_use: u64,
}

// === impl StateIndex ===

impl StateIndex {
    pub(super) fn unlocked(&self) -> usize {
        self.evictable.len()
    }

    pub(super) fn locked(&self) -> usize {
        self.states.len() - self.evictable.len()
    }

    pub(super) fn has(&self, node: NodeId) -> bool {
        self.states.contains_key(&node)
    }

    /// Keeps the state, unless the node has one.
    pub(super) fn insert(&mut self, node: NodeId, slot: StateSlot, last_use: u64) -> bool {
        if self.has(node) {
            return false;
        }
        let state = CachedState {
            slot,
            locks: 0,
            last_use,
        };
        self.states.insert(node, state);
        self.evictable.insert((last_use, node));
        true
    }

    /// The node's state, which is used now.
    pub(super) fn touch(&mut self, node: NodeId, now: u64) -> Option<StateSlot> {
        let state = self.states.get_mut(&node)?;
        if self.evictable.remove(&(state.last_use, node)) {
            self.evictable.insert((now, node));
        }
        state.last_use = now;
        Some(state.slot)
    }

    /// # Panics
    /// If the node has no state.
    pub(super) fn lock(&mut self, node: NodeId) {
        let state = self.states.get_mut(&node);
        let state = state.expect("a state that is read is there");
        state.locks += 1;
        self.evictable.remove(&(state.last_use, node));
    }

    /// # Panics
    /// If it is not locked.
    pub(super) fn unlock(&mut self, node: NodeId, now: u64) {
        let state = self.states.get_mut(&node);
        let state = state.expect("a locked state is there");
        let locks = state.locks.checked_sub(1);
        state.locks = locks.expect("unlocked as often as locked");
        if state.locks == 0 {
            state.last_use = now;
            self.evictable.insert((now, node));
        }
    }

    /// The state of a node that is evicted.
    pub(super) fn remove(&mut self, node: NodeId) -> Option<StateSlot> {
        let state = self.states.remove(&node)?;
        assert_eq!(state.locks, 0, "a node whose state is read is locked");
        self.evictable.remove(&(state.last_use, node));
        Some(state.slot)
    }

    /// Removes the unlocked state whose use is longest ago.
    pub(super) fn pop(&mut self) -> Option<(NodeId, StateSlot)> {
        let (_, node) = self.evictable.pop_first()?;
        let state = self.states.remove(&node);
        Some((node, state.expect("indexed states are there").slot))
    }
}
