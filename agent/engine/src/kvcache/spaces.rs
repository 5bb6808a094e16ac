//! The two spaces of pages, each with pages of its own. Layers that see all tokens have theirs in the full space; layers
//! that see a window, in a model that has both, in the window space, where a request keeps those of its last tokens.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// Pages, or tokens, of each space. Nothing is of the window space where a model has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PerSpace {
    pub(crate) full: usize,
    pub(crate) window: usize,
}

/// What of a sequence lies in which space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spaces {
    pub(crate) page_size: usize,
    /// Keys that a layer with a window sees, of a model with a window space.
    pub(crate) window: Option<usize>,
}

// === impl PerSpace ===

impl PerSpace {
    pub(crate) fn fits(self, available: Self) -> bool {
        self.full <= available.full && self.window <= available.window
    }

    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            full: self.full.max(other.full),
            window: self.window.max(other.window),
        }
    }

    pub(crate) fn saturating_sub(self, other: Self) -> Self {
        Self {
            full: self.full.saturating_sub(other.full),
            window: self.window.saturating_sub(other.window),
        }
    }
}

impl Add for PerSpace {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            full: self.full + other.full,
            window: self.window + other.window,
        }
    }
}

impl AddAssign for PerSpace {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for PerSpace {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), Add::add)
    }
}

// === impl Spaces ===

impl Spaces {
    /// The first page that a step reads which computes what follows `len` tokens: its first query, at `len`, sees the
    /// keys from `len + 1 - window` on, and later ones see later keys.
    pub(crate) fn first_seen(self, len: usize) -> usize {
        let first_key = self
            .window
            .map_or(0, |window| (len + 1).saturating_sub(window));
        first_key / self.page_size
    }

    /// Tokens for which a sequence of `len` needs pages between its steps. Its window begins and ends within pages.
    pub(crate) fn tokens(self, len: usize) -> PerSpace {
        let window = self.window.map_or(0, |window| window + 2 * self.page_size);
        PerSpace {
            full: len,
            window: len.min(window),
        }
    }

    /// Tokens for which pages must be free while a sequence of `len` gets `more`. Those of the window that others have as
    /// well, `shared`, stay theirs when it has left them.
    pub(crate) fn growth(self, len: usize, more: usize, shared: usize) -> PerSpace {
        let PerSpace { full, window } = self.tokens(len + more).saturating_sub(self.tokens(len));
        PerSpace {
            full,
            window: (window + shared).min(more.next_multiple_of(self.page_size)),
        }
    }
}
