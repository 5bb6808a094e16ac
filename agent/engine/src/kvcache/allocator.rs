//! `Allocator`: the owner of every page of a pool, or of every state slot. It makes no decisions; it refuses invalid
//! transitions.
//!
//! ```text
//! Free ──try_alloc──► Held ──► Cached ──► Free
//!                      ├──► Quarantined ──► Free
//!                      └──► Free
//! ```

use super::Index;

#[derive(Debug)]
pub(crate) struct Allocator<I> {
    owners: Vec<Owner>,
    /// A stack; the last one is handed out first.
    free: Vec<I>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Free,
    /// Owned by one request, in transfer or not.
    Held,
    /// In the radix cache, whether a request uses it or not.
    Cached,
    /// Its request has ended, but a peer may still read or write it.
    Quarantined,
}

/// Pages or slots by owner; the last four add up to `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) total: usize,
    pub(crate) free: usize,
    pub(crate) held: usize,
    pub(crate) cached: usize,
    pub(crate) quarantined: usize,
}

// === impl Allocator ===

impl<I: Index> Allocator<I> {
    pub(crate) fn new(total: usize) -> Self {
        Self {
            owners: vec![Owner::Free; total],
            free: (0..total).rev().map(I::from_usize).collect(),
            counts: Counts {
                total,
                free: total,
                ..Counts::default()
            },
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn free_len(&self) -> usize {
        self.free.len()
    }

    #[cfg(test)]
    pub(super) fn all_free(&self) -> std::collections::HashSet<I> {
        self.free.iter().copied().collect()
    }

    /// Appends `len` of them to `taken`, or none if fewer are free.
    pub(crate) fn try_alloc(&mut self, len: usize, taken: &mut Vec<I>) -> bool {
        let Some(rest) = self.free.len().checked_sub(len) else {
            return false;
        };
        let from = taken.len();
        taken.extend(self.free.drain(rest..).rev());
        for &index in &taken[from..] {
            self.set(index, Owner::Free, Owner::Held);
        }
        true
    }

    /// One of them, if one is free.
    pub(crate) fn try_alloc_one(&mut self) -> Option<I> {
        let index = self.free.pop()?;
        self.set(index, Owner::Free, Owner::Held);
        Some(index)
    }

    /// Frees what `from` owns. Ascending pages return in ascending order, so that runs stay runs
    /// and a transfer has few ranges.
    pub(crate) fn free(&mut self, indices: &[I], from: Owner) {
        for &index in indices.iter().rev() {
            self.set(index, from, Owner::Free);
            self.free.push(index);
        }
    }

    pub(crate) fn set(&mut self, index: I, from: Owner, to: Owner) {
        let owner = &mut self.owners[index.get()];
        assert!(*owner == from, "{index:?} is {owner:?}, not {from:?}");
        *owner = to;
        *self.count_mut(from) -= 1;
        *self.count_mut(to) += 1;
    }

    fn count_mut(&mut self, owner: Owner) -> &mut usize {
        match owner {
            Owner::Free => &mut self.counts.free,
            Owner::Held => &mut self.counts.held,
            Owner::Cached => &mut self.counts.cached,
            Owner::Quarantined => &mut self.counts.quarantined,
        }
    }
}

#[cfg(test)]
mod tests;
