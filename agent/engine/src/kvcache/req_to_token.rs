//! `ReqToTokenPool`: for every request, where the KV of each of its tokens lies. Rows hold pages;
//! the slot of a token follows from its page.
//!
//! SGLang's `DecodeReqToTokenPool` is this with `pre_alloc_size > 0`: requests whose KV is in
//! transfer take rows of their own, so that they neither block running ones nor wait for them and
//! prefill is not blocked. `running ≤ size`, `pre-allocated ≤ pre_alloc_size`. Source:
//! docs/sglang-protocol.md#decode-memory.

use super::spaces::Spaces;
use super::windows::WindowRow;
use super::{Index, PageIdx, ReqPoolIdx};

#[derive(Debug)]
pub(crate) struct ReqToTokenPool {
    rows: Vec<Row>,
    free: Vec<ReqPoolIdx>,
    spaces: Spaces,
    size: usize,
    running: usize,
    pre_alloc_size: usize,
    pre_allocated: usize,
}

#[derive(Debug, Default)]
struct Row {
    state: RowState,
    /// Page `i` holds the tokens `[i·page_size, (i+1)·page_size)`.
    pages: Vec<PageIdx>,
    /// Empty without a window space.
    window: WindowRow,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RowState {
    #[default]
    Free,
    PreAllocated,
    Running,
}

// === impl ReqToTokenPool ===

impl ReqToTokenPool {
    pub(crate) fn new(size: usize, pre_alloc_size: usize, spaces: Spaces) -> Self {
        let total = u32::try_from(size + pre_alloc_size).expect("fewer than 2^32 requests");
        Self {
            rows: (0..total).map(|_| Row::default()).collect(),
            free: (0..total).rev().map(ReqPoolIdx).collect(),
            spaces,
            size,
            running: 0,
            pre_alloc_size,
            pre_allocated: 0,
        }
    }

    pub(crate) fn spaces(&self) -> Spaces {
        self.spaces
    }

    pub(crate) fn page_size(&self) -> usize {
        self.spaces.page_size
    }

    pub(crate) fn in_use(&self) -> usize {
        self.running + self.pre_allocated
    }

    /// A row for a running request; `None` when `size` requests run.
    pub(crate) fn alloc(&mut self) -> Option<ReqPoolIdx> {
        if self.running == self.size {
            return None;
        }
        self.running += 1;
        Some(self.take(RowState::Running))
    }

    /// A row for a request whose KV will arrive; `None` when `pre_alloc_size` of them wait.
    pub(crate) fn pre_alloc(&mut self) -> Option<ReqPoolIdx> {
        if self.pre_allocated == self.pre_alloc_size {
            return None;
        }
        self.pre_allocated += 1;
        Some(self.take(RowState::PreAllocated))
    }

    /// Lets a pre-allocated request run; `false` when `size` do.
    pub(crate) fn try_promote(&mut self, idx: ReqPoolIdx) -> bool {
        let row = &mut self.rows[idx.0 as usize];
        assert!(
            row.state == RowState::PreAllocated,
            "row {} is {:?}",
            idx.0,
            row.state
        );
        if self.running == self.size {
            return false;
        }
        row.state = RowState::Running;
        self.pre_allocated -= 1;
        self.running += 1;
        true
    }

    /// Returns the row, and the pages that it held in each space.
    pub(crate) fn free(&mut self, idx: ReqPoolIdx) -> (Vec<PageIdx>, WindowRow) {
        let row = std::mem::take(&mut self.rows[idx.0 as usize]);
        match row.state {
            RowState::Free => panic!("row {} is free already", idx.0),
            RowState::PreAllocated => self.pre_allocated -= 1,
            RowState::Running => self.running -= 1,
        }
        self.free.push(idx);
        (row.pages, row.window)
    }

    pub(crate) fn pages(&self, idx: ReqPoolIdx) -> &[PageIdx] {
        &self.rows[idx.0 as usize].pages
    }

    pub(crate) fn pages_mut(&mut self, idx: ReqPoolIdx) -> &mut Vec<PageIdx> {
        &mut self.rows[idx.0 as usize].pages
    }

    /// Of a pool with a window space.
    pub(crate) fn window(&self, idx: ReqPoolIdx) -> Option<&WindowRow> {
        let row = &self.rows[idx.0 as usize];
        self.spaces.window.map(|_| &row.window)
    }

    pub(crate) fn window_mut(&mut self, idx: ReqPoolIdx) -> &mut WindowRow {
        &mut self.rows[idx.0 as usize].window
    }

    /// Where the KV of the request's token `position` lies: `page·page_size + offset`.
    pub(crate) fn slot(&self, idx: ReqPoolIdx, position: usize) -> u32 {
        self.slot_in(self.pages(idx)[position / self.page_size()], position)
    }

    /// The same of a page in either space.
    pub(crate) fn slot_in(&self, page: impl Index, position: usize) -> u32 {
        let slot = page.get() * self.page_size() + position % self.page_size();
        u32::try_from(slot).expect("a pool has fewer than 2^32 slots")
    }

    fn take(&mut self, state: RowState) -> ReqPoolIdx {
        let idx = self.free.pop().expect("rows in use are counted by state");
        self.rows[idx.0 as usize].state = state;
        idx
    }
}

#[cfg(test)]
mod tests;
