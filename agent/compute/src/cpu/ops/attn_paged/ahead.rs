//! Keys and values that come next, asked of memory while a block is computed. They lie in short pieces all over the pool,
//! where a processor's own prefetchers stay behind.

use super::keys::KeyPlaces;
use super::tile::Tile;
use crate::cpu::simd::sixteen::LANES;
use crate::ops::ATTN_BLOCK_LEN;
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

const CACHE_LINE: usize = 64;
/// A tile of more rows computes for longer than its keys take to come.
const ROWS_MAX: usize = 12;

/// A block, of the same tile or another.
#[derive(Clone, Copy)]
pub(super) struct NextBlock<'a> {
    pub(super) tile: &'a Tile<'a>,
    pub(super) block: usize,
}

/// Asks memory for parts of the next block, in step with the same parts of this one.
pub(super) trait Ahead {
    /// For sixteen dimensions of sixteen keys.
    fn ask_keys(&self, first_key: usize, first_dim: usize);

    fn ask_value(&self, key: usize);
}

/// Where the next block's keys lie in memory.
pub(super) struct NextKeys {
    keys: [*const u8; ATTN_BLOCK_LEN],
    element_bytes: usize,
    /// From a key to its value.
    to_value: usize,
    /// 0 where values are parts of keys.
    value_bytes: usize,
}

// === impl NextKeys ===

impl NextKeys {
    /// `None` where to ask early is of no use.
    pub(super) fn of(next: NextBlock<'_>) -> Option<Self> {
        let NextBlock { tile, block } = next;
        if tile.rows() > ROWS_MAX {
            return None;
        }
        let op = tile.op;
        let (base, element_bytes) = op.layer.region.bytes();
        let value_dim = if op.to_value > 0 { op.value_dim } else { 0 };
        Some(Self {
            keys: KeyPlaces::new(tile, block).pointers(base, element_bytes)?,
            element_bytes,
            to_value: op.to_value * element_bytes,
            value_bytes: value_dim * element_bytes,
        })
    }
}

impl Ahead for NextKeys {
    #[inline(always)]
    fn ask_keys(&self, first_key: usize, first_dim: usize) {
        let at = first_dim * self.element_bytes;
        if at.is_multiple_of(CACHE_LINE) {
            for key in &self.keys[first_key..first_key + LANES] {
                ask(key.wrapping_add(at));
            }
        }
    }

    #[inline(always)]
    fn ask_value(&self, key: usize) {
        let value = self.keys[key].wrapping_add(self.to_value);
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
