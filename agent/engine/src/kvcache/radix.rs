//! `RadixCache`: cached prefixes, as a tree of token runs. Whole pages only. A node in use is
//! locked with all its ancestors; unlocked leaves are evicted, least recently used first. The cache
//! names pages; the allocator keeps their states.

use super::PageIdx;
use std::collections::{BTreeSet, HashMap};

#[derive(Debug)]
pub(crate) struct RadixCache {
    page_size: usize,
    enabled: bool,
    nodes: Vec<Node>,
    free_nodes: Vec<NodeId>,
    /// Unlocked leaves by last use.
    evictable: BTreeSet<(u64, NodeId)>,
    /// Counts uses instead of time.
    clock: u64,
    locked_pages: usize,
    unlocked_pages: usize,
}

/// A position in the tree: all tokens from the root to the end of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(u32);

/// The longest cached prefix of some tokens.
#[derive(Debug)]
pub(crate) struct PrefixMatch {
    pub(crate) node: NodeId,
    pub(crate) pages: Vec<PageIdx>,
}

/// The result of an insertion: pages before `new_from` were already cached, later ones were the
/// inserter's.
#[derive(Debug)]
pub(crate) struct Insertion {
    pub(crate) node: NodeId,
    pub(crate) new_from: usize,
}

#[derive(Debug)]
struct Node {
    parent: NodeId,
    /// Keyed by the tokens of the child's first page.
    children: HashMap<Box<[u32]>, NodeId>,
    /// `pages.len() · page_size` of them.
    tokens: Vec<u32>,
    pages: Vec<PageIdx>,
    /// Requests that use this node or one below it.
    locks: u32,
    last_use: u64,
}

const ROOT: NodeId = NodeId(0);

// === impl RadixCache ===

impl RadixCache {
    /// A cache that is not `enabled` matches nothing and keeps nothing.
    pub(crate) fn new(page_size: usize, enabled: bool) -> Self {
        let root = Node {
            parent: ROOT,
            children: HashMap::new(),
            tokens: Vec::new(),
            pages: Vec::new(),
            locks: 1,
            last_use: 0,
        };
        Self {
            page_size,
            enabled,
            nodes: vec![root],
            free_nodes: Vec::new(),
            evictable: BTreeSet::new(),
            clock: 0,
            locked_pages: 0,
            unlocked_pages: 0,
        }
    }

    /// Pages that no request uses; each can be evicted, leaves first.
    pub(crate) fn unlocked_pages(&self) -> usize {
        self.unlocked_pages
    }

    pub(crate) fn locked_pages(&self) -> usize {
        self.locked_pages
    }

    /// The longest cached prefix of `tokens`, in whole pages.
    pub(crate) fn match_prefix(&mut self, tokens: &[u32]) -> PrefixMatch {
        let mut pages = Vec::new();
        let node = if self.enabled {
            self.descend(tokens, &mut pages)
        } else {
            ROOT
        };
        PrefixMatch { node, pages }
    }

    /// Caches `pages`, which hold the KV of `tokens`; both in whole pages. Where a prefix is
    /// already cached, the cached pages stay and the inserter keeps its own.
    pub(crate) fn insert(&mut self, tokens: &[u32], pages: &[PageIdx]) -> Insertion {
        assert_eq!(
            tokens.len(),
            pages.len() * self.page_size,
            "only whole pages are cached"
        );
        if !self.enabled {
            return Insertion {
                node: ROOT,
                new_from: pages.len(),
            };
        }
        let mut known = Vec::new();
        let parent = self.descend(tokens, &mut known);
        let new_from = known.len();
        if new_from == pages.len() {
            return Insertion {
                node: parent,
                new_from,
            };
        }
        let tokens = tokens[new_from * self.page_size..].to_vec();
        let pages = pages[new_from..].to_vec();
        self.unlocked_pages += pages.len();
        let last_use = self.tick();
        let key = tokens[..self.page_size].into();
        let children = HashMap::new();
        let node = Node {
            parent,
            children,
            tokens,
            pages,
            locks: 0,
            last_use,
        };
        let node = self.add(node);
        self.unindex(parent);
        self.node_mut(parent).children.insert(key, node);
        self.index(node);
        Insertion { node, new_from }
    }

    /// Keeps `node` and its ancestors from eviction until [`Self::unlock`].
    pub(crate) fn lock(&mut self, node: NodeId) {
        self.each_on_path(node, |cache, id| {
            cache.unindex(id);
            let node = cache.node_mut(id);
            node.locks += 1;
            let (first, len) = (node.locks == 1, node.pages.len());
            if first {
                cache.unlocked_pages -= len;
                cache.locked_pages += len;
            }
        });
    }

    pub(crate) fn unlock(&mut self, node: NodeId) {
        let last_use = self.tick();
        self.each_on_path(node, |cache, id| {
            let node = cache.node_mut(id);
            node.locks = node
                .locks
                .checked_sub(1)
                .expect("unlocked as often as locked");
            node.last_use = last_use;
            let (last, len) = (node.locks == 0, node.pages.len());
            if last {
                cache.locked_pages -= len;
                cache.unlocked_pages += len;
                cache.index(id);
            }
        });
    }

    /// Drops unlocked leaves, least recently used first, until at least `len` pages are returned or
    /// none is left.
    pub(crate) fn evict(&mut self, len: usize) -> Vec<PageIdx> {
        let page_size = self.page_size;
        let mut pages = Vec::new();
        while pages.len() < len
            && let Some((_, id)) = self.evictable.pop_first()
        {
            let node = self.node_mut(id);
            let parent = node.parent;
            let tokens = std::mem::take(&mut node.tokens);
            let evicted = std::mem::take(&mut node.pages);
            self.unlocked_pages -= evicted.len();
            pages.extend(evicted);
            self.node_mut(parent).children.remove(&tokens[..page_size]);
            self.free_nodes.push(id);
            self.index(parent);
        }
        pages
    }

    /// The pages from the root to the end of `node`.
    pub(crate) fn path_pages(&self, node: NodeId) -> Vec<PageIdx> {
        let mut runs = Vec::new();
        let mut id = node;
        while id != ROOT {
            runs.push(&self.nodes[id.0 as usize]);
            id = self.nodes[id.0 as usize].parent;
        }
        runs.iter()
            .rev()
            .flat_map(|node| node.pages.iter().copied())
            .collect()
    }

    /// Walks down as far as `tokens` are cached, splitting the node where they diverge.
    fn descend(&mut self, tokens: &[u32], pages: &mut Vec<PageIdx>) -> NodeId {
        let last_use = self.tick();
        let mut id = ROOT;
        let mut rest = tokens;
        while rest.len() >= self.page_size
            && let Some(&child) = self.node(id).children.get(&rest[..self.page_size])
        {
            let common = self.common_pages(child, rest);
            id = if common < self.node(child).pages.len() {
                self.split(child, common)
            } else {
                child
            };
            self.touch(id, last_use);
            pages.extend_from_slice(&self.node(id).pages);
            rest = &rest[common * self.page_size..];
        }
        id
    }

    fn common_pages(&self, id: NodeId, tokens: &[u32]) -> usize {
        let chunks = self.node(id).tokens.chunks_exact(self.page_size);
        let others = tokens.chunks_exact(self.page_size);
        chunks.zip(others).take_while(|(a, b)| a == b).count()
    }

    /// Moves the first `len` pages of `id` to a new parent, which is returned. `id` keeps its end,
    /// so locks on it still name the same tokens.
    fn split(&mut self, id: NodeId, len: usize) -> NodeId {
        let cut = len * self.page_size;
        let page_size = self.page_size;
        let lower = self.node_mut(id);
        let tail = lower.tokens.split_off(cut);
        let tokens = std::mem::replace(&mut lower.tokens, tail);
        let tail = lower.pages.split_off(len);
        let pages = std::mem::replace(&mut lower.pages, tail);
        let (parent, locks, last_use) = (lower.parent, lower.locks, lower.last_use);
        let lower_key: Box<[u32]> = lower.tokens[..page_size].into();
        let upper_key: Box<[u32]> = tokens[..page_size].into();
        let children = HashMap::from([(lower_key, id)]);
        let upper = self.add(Node {
            parent,
            children,
            tokens,
            pages,
            locks,
            last_use,
        });
        self.node_mut(id).parent = upper;
        self.node_mut(parent).children.insert(upper_key, upper);
        upper
    }

    fn touch(&mut self, id: NodeId, last_use: u64) {
        self.unindex(id);
        self.node_mut(id).last_use = last_use;
        self.index(id);
    }

    /// Adds `id` to the evictable nodes if it is an unlocked leaf.
    fn index(&mut self, id: NodeId) {
        let node = self.node(id);
        if node.locks == 0 && node.children.is_empty() {
            let entry = (node.last_use, id);
            self.evictable.insert(entry);
        }
    }

    fn unindex(&mut self, id: NodeId) {
        let entry = (self.node(id).last_use, id);
        self.evictable.remove(&entry);
    }

    fn each_on_path(&mut self, node: NodeId, mut act: impl FnMut(&mut Self, NodeId)) {
        let mut id = node;
        while id != ROOT {
            act(self, id);
            id = self.node(id).parent;
        }
    }

    fn add(&mut self, node: Node) -> NodeId {
        if let Some(id) = self.free_nodes.pop() {
            self.nodes[id.0 as usize] = node;
            return id;
        }
        let id = u32::try_from(self.nodes.len()).expect("no more nodes than pages");
        self.nodes.push(node);
        NodeId(id)
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }
}

#[cfg(test)]
mod tests;
