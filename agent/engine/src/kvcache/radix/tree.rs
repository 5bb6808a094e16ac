//! `Tree`: runs of tokens with the pages that hold their KV, with locks and the order of eviction.

use crate::kvcache::PageIdx;
use std::collections::{BTreeSet, HashMap};

#[derive(Debug)]
pub(super) struct Tree {
    page_size: usize,
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

/// An evicted leaf.
pub(super) struct Leaf {
    pub(super) node: NodeId,
    pub(super) parent: NodeId,
    pub(super) pages: Vec<PageIdx>,
}

// === impl Tree ===

impl Tree {
    pub(super) const ROOT: NodeId = NodeId(0);

    pub(super) fn new(page_size: usize) -> Self {
        let root = Node {
            parent: Self::ROOT,
            children: HashMap::new(),
            tokens: Vec::new(),
            pages: Vec::new(),
            locks: 1,
            last_use: 0,
        };
        Self {
            page_size,
            nodes: vec![root],
            free_nodes: Vec::new(),
            evictable: BTreeSet::new(),
            clock: 0,
            locked_pages: 0,
            unlocked_pages: 0,
        }
    }

    pub(super) fn page_size(&self) -> usize {
        self.page_size
    }

    pub(super) fn unlocked_pages(&self) -> usize {
        self.unlocked_pages
    }

    pub(super) fn locked_pages(&self) -> usize {
        self.locked_pages
    }

    /// The last use.
    pub(super) fn clock(&self) -> u64 {
        self.clock
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.nodes.len() - self.free_nodes.len() - 1
    }

    /// Adds a leaf below `parent`.
    pub(super) fn append(&mut self, parent: NodeId, tokens: &[u32], pages: &[PageIdx]) -> NodeId {
        self.unlocked_pages += pages.len();
        let last_use = self.tick();
        let key = tokens[..self.page_size].into();
        let node = self.add(Node {
            parent,
            children: HashMap::new(),
            tokens: tokens.to_vec(),
            pages: pages.to_vec(),
            locks: 0,
            last_use,
        });
        self.unindex(parent);
        self.node_mut(parent).children.insert(key, node);
        self.index(node);
        node
    }

    /// Keeps `node` and its ancestors from eviction until [`Self::unlock`].
    pub(super) fn lock(&mut self, node: NodeId) {
        self.each_on_path(node, |tree, id| {
            tree.unindex(id);
            let node = tree.node_mut(id);
            node.locks += 1;
            let (first, len) = (node.locks == 1, node.pages.len());
            if first {
                tree.unlocked_pages -= len;
                tree.locked_pages += len;
            }
        });
    }

    pub(super) fn unlock(&mut self, node: NodeId) {
        let last_use = self.tick();
        self.each_on_path(node, |tree, id| {
            let node = tree.node_mut(id);
            node.locks = node
                .locks
                .checked_sub(1)
                .expect("unlocked as often as locked");
            node.last_use = last_use;
            let (last, len) = (node.locks == 0, node.pages.len());
            if last {
                tree.locked_pages -= len;
                tree.unlocked_pages += len;
                tree.index(id);
            }
        });
    }

    /// Removes the unlocked leaf whose use is longest ago.
    pub(super) fn pop_leaf(&mut self) -> Option<Leaf> {
        let (_, id) = self.evictable.pop_first()?;
        let page_size = self.page_size;
        let node = self.node_mut(id);
        let parent = node.parent;
        let tokens = std::mem::take(&mut node.tokens);
        let pages = std::mem::take(&mut node.pages);
        self.unlocked_pages -= pages.len();
        self.node_mut(parent).children.remove(&tokens[..page_size]);
        self.free_nodes.push(id);
        self.index(parent);
        Some(Leaf {
            node: id,
            parent,
            pages,
        })
    }

    /// Lets `node` go first, if it is a leaf: it has become useless.
    pub(super) fn discount(&mut self, node: NodeId) {
        if node != Self::ROOT && self.node(node).children.is_empty() {
            self.touch(node, 0);
        }
    }

    /// The deepest node on the path from the root to `node` for which `is_it` holds, else the root, and the pages up to
    /// its end.
    pub(super) fn up_to(&self, node: NodeId, is_it: impl Fn(NodeId) -> bool) -> (NodeId, usize) {
        let mut id = node;
        while id != Self::ROOT && !is_it(id) {
            id = self.node(id).parent;
        }
        let found = id;
        let mut pages = 0;
        while id != Self::ROOT {
            pages += self.node(id).pages.len();
            id = self.node(id).parent;
        }
        (found, pages)
    }

    /// The pages from the root to the end of `node`.
    pub(super) fn path_pages(&self, node: NodeId) -> Vec<PageIdx> {
        let mut runs = Vec::new();
        let mut id = node;
        while id != Self::ROOT {
            runs.push(&self.nodes[id.0 as usize]);
            id = self.nodes[id.0 as usize].parent;
        }
        runs.iter()
            .rev()
            .flat_map(|node| node.pages.iter().copied())
            .collect()
    }

    /// Walks down as far as `tokens` are cached, splitting the node where they diverge.
    pub(super) fn descend(&mut self, tokens: &[u32], pages: &mut Vec<PageIdx>) -> NodeId {
        let last_use = self.tick();
        let mut id = Self::ROOT;
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
        while id != Self::ROOT {
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

    pub(super) fn tick(&mut self) -> u64 {
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
