//! In which order a linear adds up k, so that ranks which have parts of it give the bits of one that has all.
//!
//! A linear whose k lies on several ranks (a layer's output projections) is the sum of theirs. Addition of floats
//! depends on its order, so all of k is cut into eight equal shares, each a chain over ascending k, and the shares
//! are added as a binary tree: `((s0+s1)+(s2+s3))+((s4+s5)+(s6+s7))`. A rank of 2, 4 or 8 has neighbouring shares,
//! and what it adds up is one node of that tree.

use crate::error::ComputeError;
use crate::weight::WeightSource;

/// Shares of all of a linear's k.
pub(crate) const K_SHARES: usize = 8;
/// Shares of the experts whose sums are added in one tree, for any division among ranks.
pub const EXPERT_SHARES: usize = 8;

/// The order in which a linear adds up k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KOrder {
    /// One chain: all of k is on one rank.
    Chain,
    /// A chain for each share, and a tree over the shares.
    Tree(KShares),
}

/// Of the eight shares of a whole k, how many neighbouring ones a weight has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KShares {
    One = 1,
    Two = 2,
    Four = 4,
    All = 8,
}

/// How the parts of a linear become one weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// One after another along n, as q, k and v.
    Joined(KOrder),
    /// Row by row in turn, as gate and up.
    Interleaved,
}

// === impl KOrder ===

impl KOrder {
    /// Whether ranks of each number that divides [`K_SHARES`] give the bits of one.
    pub const fn holds_for_every_tp(self) -> bool {
        matches!(self, Self::Tree(_))
    }

    /// Runs of k that are added up one by one.
    pub(crate) const fn shares(self) -> usize {
        match self {
            Self::Chain => 1,
            Self::Tree(shares) => shares.count(),
        }
    }

    /// The order of a weight whose shares are whole multiples of `unit`: a chain for one that has all shares and cannot
    /// be cut so.
    ///
    /// # Errors
    /// When the weight has some of the shares and they cannot be cut, so that no sum over ranks would be right.
    pub(crate) fn fitting(
        self,
        part: &WeightSource<'_>,
        unit: usize,
    ) -> Result<Self, ComputeError> {
        let Self::Tree(shares) = self else {
            return Ok(self);
        };
        let count = shares.count();
        if part.k.is_multiple_of(count * unit) {
            return Ok(self);
        }
        if shares == KShares::All {
            return Ok(Self::Chain);
        }
        Err(ComputeError::WeightShape {
            name: part.name.to_owned(),
            reason: format!(
                "has {} columns, which are no {count} of the {K_SHARES} shares of a k, each a multiple of \
                 {unit}; use one rank",
                part.k
            ),
        })
    }
}

// === impl KShares ===

impl KShares {
    /// Those of each rank of `tp_size`; `None` where ranks cannot have equal numbers of them.
    pub const fn of_rank(tp_size: usize) -> Option<Self> {
        match tp_size {
            1 => Some(Self::All),
            2 => Some(Self::Four),
            4 => Some(Self::Two),
            8 => Some(Self::One),
            _ => None,
        }
    }

    pub const fn count(self) -> usize {
        self as usize
    }
}

// === impl Packing ===

impl Packing {
    /// Parts one after another, of which each rank has all of k.
    pub const JOINED: Self = Self::Joined(KOrder::Chain);
    /// A linear whose k is divided among ranks, of a single rank.
    pub const SUMMED: Self = Self::Joined(KOrder::Tree(KShares::All));

    pub const fn interleaves(self) -> bool {
        matches!(self, Self::Interleaved)
    }

    pub const fn order(self) -> KOrder {
        match self {
            Self::Joined(order) => order,
            Self::Interleaved => KOrder::Chain,
        }
    }
}
