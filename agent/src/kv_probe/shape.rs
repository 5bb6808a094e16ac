//! What a round transfers: pieces of adjacent pages, scattered over both pools.

use super::pool::PAGE_BYTES;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

/// Pages of a piece: 64 KiB, 1 MiB, 16 MiB.
const PIECES: [u32; 3] = [1, 16, 256];
/// Pages of prompts smaller than the pool: 256 MiB, 16 MiB, 1 MiB.
const PARTS: [u32; 3] = [4096, 256, 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) pieces: u32,
    pub(super) piece_pages: u32,
}

/// Rows of the table for pools of `pages`: the whole pool in pieces of each size, then parts of it
/// in single pages.
pub(super) fn shapes(pages: u32) -> Vec<Shape> {
    let whole = PIECES.into_iter().map(|piece_pages| Shape {
        pieces: pages / piece_pages,
        piece_pages,
    });
    let parts = PARTS.into_iter().map(|pieces| Shape {
        pieces,
        piece_pages: 1,
    });
    let whole = whole.filter(|shape| shape.pieces > 0);
    whole
        .chain(parts.filter(|part| part.pieces < pages))
        .collect()
}

// === impl Shape ===

impl Shape {
    /// One write of one page.
    pub(super) const SMALLEST: Self = Self {
        pieces: 1,
        piece_pages: 1,
    };

    pub(super) fn pages(self) -> u32 {
        self.pieces * self.piece_pages
    }

    pub(super) fn piece_bytes(self) -> u64 {
        u64::from(self.piece_pages) * PAGE_BYTES as u64
    }

    /// The pieces' pages in an order drawn from `seed`: disjoint positions in a pool of
    /// `pool_pages`.
    pub(super) fn scatter(self, pool_pages: u32, seed: u64) -> Vec<u32> {
        let mut places: Vec<u32> = (0..pool_pages / self.piece_pages).collect();
        places.shuffle(&mut StdRng::seed_from_u64(seed));
        places.truncate(self.pieces as usize);
        let pages = places.into_iter().flat_map(|place| {
            let first = place * self.piece_pages;
            first..first + self.piece_pages
        });
        pages.collect()
    }
}

#[cfg(test)]
mod tests;
