//! The order of k within a kernel: a chain for each share, and a tree over shares, whose pairs are added as they complete.

use super::{MAX_TILE_ROWS, Tile};
use crate::cpu::pack::BLOCK_LANES;
use crate::cpu::simd::Simd;
use crate::cpu::simd::tiles::Tiles;
use std::ops::Range;

/// All `len` of k in so many equal shares: a power of two, eight at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KTree {
    pub(crate) len: usize,
    pub(crate) shares: usize,
}

/// What a tree over eight shares needs: sums of four, of two and of one that wait, and the last share's. The first is the
/// result.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct TreeTiles {
    pub(super) sums: [Tile; 4],
    /// Where a kernel uses AMX.
    pub(super) amx: Tiles,
}

/// A share, and where its sums go.
///
/// Before share s, as many sums wait as s has ones in binary, the largest first. Each one that s ends with is a sum that
/// the share completes to a pair.
#[derive(Clone)]
pub(super) struct Share {
    pub(super) ks: Range<usize>,
    /// Of the tiles, those that wait for this share and are added to it, the last one first. The result takes the place
    /// of the first of them, or where there is none, the next tile.
    pub(super) pairs: Range<usize>,
}

// === impl KTree ===

impl KTree {
    #[inline(always)]
    pub(super) fn shares(self) -> impl Iterator<Item = Share> {
        let len = self.len / self.shares;
        (0..self.shares).map(move |share| {
            let waiting = share.count_ones() as usize;
            Share {
                ks: share * len..(share + 1) * len,
                pairs: waiting - share.trailing_ones() as usize..waiting,
            }
        })
    }
}

// === impl TreeTiles ===

impl Default for TreeTiles {
    fn default() -> Self {
        Self {
            sums: [[[0.0; BLOCK_LANES]; MAX_TILE_ROWS]; 4],
            amx: Tiles::default(),
        }
    }
}

impl TreeTiles {
    /// Takes this thread's tile shapes away. Called after a segment's tiles, and before them too: a panic may have left
    /// shapes behind.
    pub(crate) fn release(&mut self) {
        self.amx = Tiles::default();
    }

    /// The sums of all shares, once a kernel has run.
    pub(crate) fn result(&self) -> &Tile {
        &self.sums[0]
    }

    /// Adds the tiles of `pairs` and the one after them to the first.
    ///
    /// # Safety
    /// The instruction set is there.
    #[inline(always)]
    pub(super) unsafe fn add<V: Simd, const ROWS: usize>(&mut self, pairs: Range<usize>) {
        for left in pairs.rev() {
            let [left, right] = &mut self.sums[left..left + 2] else {
                unreachable!("two tiles")
            };
            for (left, right) in left.iter_mut().zip(right).take(ROWS) {
                for i in (0..BLOCK_LANES).step_by(V::LANES) {
                    // SAFETY: the caller has the instruction set; `V::LANES` divides 32.
                    unsafe {
                        let at = left.as_mut_ptr().add(i);
                        V::load(at).add(V::load(right.as_ptr().add(i))).store(at);
                    }
                }
            }
        }
    }
}
