//! `Usage`: where every page and state slot is.

use crate::kvcache::allocator::Counts;

/// Where every page of each space and every state slot is, and how many request rows are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) pages: Counts,
    /// Cached pages that some request uses.
    pub(crate) locked: usize,
    pub(crate) unlocked: usize,
    /// Of the window space; its cached pages as those above.
    pub(crate) window_pages: Counts,
    pub(crate) locked_windows: usize,
    pub(crate) unlocked_windows: usize,
    pub(crate) slots: Counts,
    /// Cached states that a request is about to read.
    pub(crate) locked_states: usize,
    pub(crate) unlocked_states: usize,
    pub(crate) rows: usize,
}

// === impl Usage ===

impl Usage {
    /// Invariant 7 (ARCHITECTURE.md) while the engine is idle: a page or slot that is not free, cached or
    /// quarantined is lost, and so is a row in use. Only quarantined KV locks what is cached.
    pub(crate) fn is_conserved_when_idle(&self) -> bool {
        let is_conserved = |counts: &Counts, locked: usize, unlocked: usize, quarantined: bool| {
            counts.free + unlocked + locked + counts.quarantined == counts.total
                && counts.held == 0
                && counts.cached == locked + unlocked
                && (locked == 0 || quarantined)
        };
        let Self {
            pages,
            window_pages,
            slots,
            locked,
            unlocked,
            locked_windows,
            unlocked_windows,
            locked_states,
            unlocked_states,
            rows,
        } = self;
        let quarantined = pages.quarantined + window_pages.quarantined + slots.quarantined > 0;
        is_conserved(pages, *locked, *unlocked, quarantined)
            && is_conserved(
                window_pages,
                *locked_windows,
                *unlocked_windows,
                quarantined,
            )
            && is_conserved(slots, *locked_states, *unlocked_states, quarantined)
            && *rows == 0
    }
}
