//! `PageAllocator`: the state of every page. It makes no decisions; it refuses invalid transitions.
//!
//! ```text
//! Free ──try_alloc──► Held ──► Cached ──► Free
//!                      ├──► Quarantined ──► Free
//!                      └──► Free
//! ```

use super::PageIdx;

#[derive(Debug)]
pub(crate) struct PageAllocator {
    states: Vec<PageState>,
    /// A stack; the last page is handed out first.
    free: Vec<PageIdx>,
    counts: PageCounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageState {
    Free,
    /// Owned by one request, in transfer or not.
    Held,
    /// In the radix cache, whether a request uses it or not.
    Cached,
    /// Its request has ended, but a peer may still read or write it.
    Quarantined,
}

/// Pages by state; the last four add up to `total`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageCounts {
    pub(crate) total: usize,
    pub(crate) free: usize,
    pub(crate) held: usize,
    pub(crate) cached: usize,
    pub(crate) quarantined: usize,
}

// === impl PageAllocator ===

impl PageAllocator {
    pub(crate) fn new(total: usize) -> Self {
        Self {
            states: vec![PageState::Free; total],
            free: (0..total).rev().map(PageIdx::from_usize).collect(),
            counts: PageCounts {
                total,
                free: total,
                ..PageCounts::default()
            },
        }
    }

    pub(crate) fn counts(&self) -> PageCounts {
        self.counts
    }

    pub(crate) fn free_len(&self) -> usize {
        self.free.len()
    }

    #[cfg(test)]
    pub(super) fn free_pages(&self) -> std::collections::HashSet<PageIdx> {
        self.free.iter().copied().collect()
    }

    /// Appends `len` pages to `pages`, or none if fewer are free.
    pub(crate) fn try_alloc(&mut self, len: usize, pages: &mut Vec<PageIdx>) -> bool {
        let Some(rest) = self.free.len().checked_sub(len) else {
            return false;
        };
        let from = pages.len();
        pages.extend(self.free.drain(rest..).rev());
        for &page in &pages[from..] {
            self.set(page, PageState::Free, PageState::Held);
        }
        true
    }

    /// Frees pages that are in state `from`. Ascending pages return in ascending order, so that
    /// runs stay runs and a transfer has few ranges.
    pub(crate) fn free(&mut self, pages: &[PageIdx], from: PageState) {
        for &page in pages.iter().rev() {
            self.set(page, from, PageState::Free);
            self.free.push(page);
        }
    }

    pub(crate) fn set(&mut self, page: PageIdx, from: PageState, to: PageState) {
        let state = &mut self.states[page.get()];
        assert!(*state == from, "page {} is {state:?}, not {from:?}", page.0);
        *state = to;
        *self.count_mut(from) -= 1;
        *self.count_mut(to) += 1;
    }

    fn count_mut(&mut self, state: PageState) -> &mut usize {
        match state {
            PageState::Free => &mut self.counts.free,
            PageState::Held => &mut self.counts.held,
            PageState::Cached => &mut self.counts.cached,
            PageState::Quarantined => &mut self.counts.quarantined,
        }
    }
}

#[cfg(test)]
mod tests;
