//! `RadixCache`: cached prefixes, as a tree of token runs. Whole pages only. A node in use is
//! locked with all its ancestors; unlocked leaves are evicted, least recently used first. The cache
//! names pages and state slots; the allocators keep their owners.
//!
//! A model with recurrent state can go on from a prefix only where its state was kept (`states`): from there on it
//! computes again what leads to the state, and only reads the pages that are cached. States are locked and evicted by
//! themselves, since there are far fewer of them than pages; SGLang's `MambaRadixCache`.

mod states;
mod tree;

use super::{PageIdx, StateSlot};
use states::StateIndex;
use tree::Tree;

pub(crate) use tree::NodeId;

#[derive(Debug)]
pub(crate) struct RadixCache {
    enabled: bool,
    tree: Tree,
    /// Of models with recurrent state.
    states: Option<StateIndex>,
}

/// What a cache may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    /// Nothing, and so it matches nothing.
    Off,
    Pages,
    /// A prefix is of use where there is a state at its end.
    PagesAndStates,
}

/// The longest cached prefix of some tokens.
#[derive(Debug)]
pub(crate) struct PrefixMatch {
    pub(crate) node: NodeId,
    pub(crate) pages: Vec<PageIdx>,
    /// The longest part of it with a state at its end, of a model with recurrent state.
    pub(crate) state: Option<StateMatch>,
}

/// A state that is kept at the end of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateMatch {
    pub(crate) node: NodeId,
    pub(crate) slot: StateSlot,
    /// Tokens that it is the state after.
    pub(crate) len: usize,
}

/// The result of an insertion: pages before `new_from` were already cached, later ones were the
/// inserter's.
#[derive(Debug)]
pub(crate) struct Insertion {
    pub(crate) node: NodeId,
    pub(crate) new_from: usize,
}

/// What an eviction gives back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Evicted {
    pub(crate) pages: Vec<PageIdx>,
    pub(crate) states: Vec<StateSlot>,
}

// === impl RadixCache ===

impl RadixCache {
    pub(crate) fn new(page_size: usize, caching: Caching) -> Self {
        Self {
            enabled: caching != Caching::Off,
            tree: Tree::new(page_size),
            states: (caching == Caching::PagesAndStates).then(StateIndex::default),
        }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Pages that no request uses; each can be evicted, leaves first.
    pub(crate) fn unlocked_pages(&self) -> usize {
        self.tree.unlocked_pages()
    }

    pub(crate) fn locked_pages(&self) -> usize {
        self.tree.locked_pages()
    }

    /// States that no request reads; each can be evicted.
    pub(crate) fn unlocked_states(&self) -> usize {
        self.states.as_ref().map_or(0, StateIndex::unlocked)
    }

    pub(crate) fn locked_states(&self) -> usize {
        self.states.as_ref().map_or(0, StateIndex::locked)
    }

    /// The longest cached prefix of `tokens`, in whole pages.
    pub(crate) fn match_prefix(&mut self, tokens: &[u32]) -> PrefixMatch {
        let mut found = PrefixMatch {
            node: Tree::ROOT,
            pages: Vec::new(),
            state: None,
        };
        if !self.enabled {
            return found;
        }
        found.node = self.tree.descend(tokens, &mut found.pages);
        if let Some(states) = &mut self.states {
            let (node, pages) = self.tree.up_to(found.node, |id| states.has(id));
            let slot = states.touch(node, self.tree.clock());
            let len = pages * self.tree.page_size();
            found.state = slot.map(|slot| StateMatch { node, slot, len });
        }
        found
    }

    /// Caches `pages`, which hold the KV of `tokens`; both in whole pages. Where a prefix is
    /// already cached, the cached pages stay and the inserter keeps its own.
    pub(crate) fn insert(&mut self, tokens: &[u32], pages: &[PageIdx]) -> Insertion {
        assert_eq!(
            tokens.len(),
            pages.len() * self.tree.page_size(),
            "only whole pages are cached"
        );
        if !self.enabled {
            return Insertion {
                node: Tree::ROOT,
                new_from: pages.len(),
            };
        }
        let mut known = Vec::new();
        let parent = self.tree.descend(tokens, &mut known);
        let new_from = known.len();
        let node = if new_from == pages.len() {
            parent
        } else {
            let tokens = &tokens[new_from * self.tree.page_size()..];
            self.tree.append(parent, tokens, &pages[new_from..])
        };
        Insertion { node, new_from }
    }

    /// Keeps `slot` as the state after `tokens`, whose pages are cached; `false` if there is one already.
    ///
    /// # Panics
    /// If the pages are not cached, or the model has no state.
    pub(crate) fn insert_state(&mut self, tokens: &[u32], slot: StateSlot) -> bool {
        let mut pages = Vec::new();
        let node = self.tree.descend(tokens, &mut pages);
        assert_eq!(
            pages.len() * self.tree.page_size(),
            tokens.len(),
            "a state is kept behind cached pages"
        );
        let clock = self.tree.clock();
        let states = self.states.as_mut().expect("the model has states");
        states.insert(node, slot, clock)
    }

    /// Keeps `node` and its ancestors from eviction until [`Self::unlock`].
    pub(crate) fn lock(&mut self, node: NodeId) {
        self.tree.lock(node);
    }

    pub(crate) fn unlock(&mut self, node: NodeId) {
        self.tree.unlock(node);
    }

    /// Keeps the state at the end of `node` from eviction until [`Self::unlock_state`]. The caller has locked the node.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn lock_state(&mut self, node: NodeId) {
        self.states_mut().lock(node);
    }

    pub(crate) fn unlock_state(&mut self, node: NodeId) {
        let clock = self.tree.tick();
        self.states_mut().unlock(node, clock);
    }

    fn states_mut(&mut self) -> &mut StateIndex {
        self.states.as_mut().expect("the model has states")
    }

    /// Drops unlocked leaves, the useless ones first, then least recently used first, until at least `len` pages are
    /// returned or none is left.
    pub(crate) fn evict(&mut self, len: usize) -> Evicted {
        let mut evicted = Evicted::default();
        while evicted.pages.len() < len
            && let Some(leaf) = self.tree.pop_leaf()
        {
            evicted.pages.extend(leaf.pages);
            if let Some(states) = &mut self.states {
                evicted.states.extend(states.remove(leaf.node));
                if !states.has(leaf.parent) {
                    self.tree.discount(leaf.parent);
                }
            }
        }
        evicted
    }

    /// The pages from the root to the end of `node`.
    pub(crate) fn path_pages(&self, node: NodeId) -> Vec<PageIdx> {
        self.tree.path_pages(node)
    }

    /// Drops unlocked states, least recently used first, until `len` are returned or none is left.
    pub(crate) fn evict_states(&mut self, len: usize) -> Vec<StateSlot> {
        let mut evicted = Vec::new();
        while evicted.len() < len
            && let Some((node, slot)) = self.states.as_mut().and_then(StateIndex::pop)
        {
            evicted.push(slot);
            self.tree.discount(node);
        }
        evicted
    }
}

#[cfg(test)]
mod tests;
