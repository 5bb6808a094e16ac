//! Keys and values that come next, asked of memory while a block is computed. They lie in short pieces all over the pool,
//! where a processor's own prefetchers stay behind.

use super::keys::KeyPlaces;
use super::tile::Tile;
use crate::cpu::simd::sixteen::LANES;
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

const CACHE_LINE: usize = 64;
/// A tile of more rows computes for longer than its keys take to come.
const ROWS_MAX: usize = 12;

/// Asks memory for parts of the next block, in step with the same parts of this one.
pub(super) trait Ahead {
    /// For sixteen dimensions of sixteen keys.
    fn ask_keys(&self, first_key: usize, first_dim: usize);

    fn ask_value(&self, key: usize);
}

/// Where the next block's keys lie in memory.
pub(super) struct NextKeys<'a> {
    places: &'a KeyPlaces,
    /// The region.
    base: *const u8,
    element_bytes: usize,
    /// From a key to its value.
    to_value: usize,
    /// 0 where values are parts of keys.
    value_bytes: usize,
}

// === impl NextKeys ===

impl<'a> NextKeys<'a> {
    /// Of a block of `tile` or of another like it. `None` where to ask early is of no use.
    pub(super) fn of(tile: &Tile<'_>, places: &'a KeyPlaces) -> Option<Self> {
        if tile.rows() > ROWS_MAX {
            return None;
        }
        let op = tile.op;
        let (base, element_bytes) = op.layer.region.bytes();
        let value_dim = if op.to_value > 0 { op.value_dim } else { 0 };
        Some(Self {
            places,
            base,
            element_bytes,
            to_value: op.to_value * element_bytes,
            value_bytes: value_dim * element_bytes,
        })
    }

    #[inline(always)]
    fn key(&self, key: usize) -> *const u8 {
        self.base
            .wrapping_add(self.places.at(key) * self.element_bytes)
    }
}

impl Ahead for NextKeys<'_> {
    #[inline(always)]
    fn ask_keys(&self, first_key: usize, first_dim: usize) {
        let at = first_dim * self.element_bytes;
        if at.is_multiple_of(CACHE_LINE) {
            for key in first_key..first_key + LANES {
                ask(self.key(key).wrapping_add(at));
            }
        }
    }

    #[inline(always)]
    fn ask_value(&self, key: usize) {
        let value = self.key(key).wrapping_add(self.to_value);
        for at in (0..self.value_bytes).step_by(CACHE_LINE) {
            ask(value.wrapping_add(at));
        }
    }
}

/// Nothing comes next.
impl Ahead for () {
    #[inline(always)]
    fn ask_keys(&self, _first_key: usize, _first_dim: usize) {}

    #[inline(always)]
    fn ask_value(&self, _key: usize) {}
}

#[inline(always)]
fn ask(line: *const u8) {
    // SAFETY: a hint, about any address; SSE is part of x86-64.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(line.cast()) };
}
