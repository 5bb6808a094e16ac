//! One block of 64 keys, attended by the rows of a tile that see any of it.

use super::ahead::{Ahead, NextKeys};
use super::keys::KeyPlaces;
use super::op::Multiplies;
use super::pairs::round_rows;
use super::products::Products;
use super::tile::Tile;
use crate::cpu::simd::activation::soft_cap;
use crate::cpu::simd::dispatch::Kernel;
use crate::cpu::simd::sixteen::{LANES, Sixteen};
use crate::cpu::simd::tiles::Tiles;
use crate::ops::ATTN_BLOCK_LEN;
use bytemuck::{Pod, Zeroable};
use std::ops::Range;

/// Memory that a block needs, aligned to vectors.
#[derive(Default)]
pub(super) struct BlockScratch {
    /// `[rows][key dim]` of a tile, scaled, as pairs where the op multiplies those.
    queries: Vec<Line>,
    lines: Vec<Line>,
    depths: Vec<Range<usize>>,
    tiles: Tiles,
}

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([f32; LANES]);

/// The memory of one block, by what it holds.
struct Parts<'a> {
    /// `[key dim][64]`.
    keys: &'a mut [f32],
    /// `[64][value dim]`, where values are not f32.
    widened: &'a mut [f32],
    /// `[rows][64]`: scores, then weights.
    weights: &'a mut [f32],
    queries: &'a [f32],
    depths: &'a mut Vec<Range<usize>>,
    tiles: &'a mut Tiles,
}

// === impl BlockScratch ===

impl BlockScratch {
    /// Makes a tile's queries ready, before its blocks.
    ///
    /// # Safety
    /// On the queue, with the op's instruction set.
    pub(super) unsafe fn begin(&mut self, tile: &Tile<'_>) {
        // A panic may have left tile shapes on this thread.
        self.end();
        let (rows, key_dim) = (tile.rows(), tile.padded_key_dim());
        let queries = &mut grown(&mut self.queries, rows * key_dim)[..rows * key_dim];
        // SAFETY: the caller's; the op writes only its output.
        unsafe {
            load_queries(tile, queries);
            if tile.op.multiplies != Multiplies::Floats {
                round_rows(queries, key_dim);
            }
        }
    }

    /// After a tile's blocks.
    pub(super) fn end(&mut self) {
        self.tiles = Tiles::default();
    }

    fn parts(&mut self, rows: usize, key_dim: usize, value_dim: usize) -> Parts<'_> {
        let Self {
            queries,
            lines,
            depths,
            tiles,
        } = self;
        let sizes = [
            ATTN_BLOCK_LEN * key_dim,
            ATTN_BLOCK_LEN * value_dim,
            rows * ATTN_BLOCK_LEN,
        ];
        let floats = grown(lines, sizes.iter().sum());
        let (keys, floats) = floats.split_at_mut(sizes[0]);
        let (widened, floats) = floats.split_at_mut(sizes[1]);
        Parts {
            keys,
            widened,
            weights: &mut floats[..sizes[2]],
            queries: bytemuck::cast_slice(queries),
            depths,
            tiles,
        }
    }
}

/// At least `len` of the floats in `lines`.
fn grown(lines: &mut Vec<Line>, len: usize) -> &mut [f32] {
    if lines.len() < len.div_ceil(LANES) {
        lines.resize(len.div_ceil(LANES), Line::zeroed());
    }
    bytemuck::cast_slice_mut(lines)
}

/// Attends `block` into `partial` (see [`super::fold`] for its form). Rows that see none of the
/// block get maximum −∞ and a sum of 0, and folding leaves their values alone.
pub(super) struct AttendBlock<'a> {
    pub(super) tile: &'a Tile<'a>,
    pub(super) block: usize,
    pub(super) places: &'a KeyPlaces,
    /// Those of what this thread most likely attends next.
    pub(super) next: Option<&'a KeyPlaces>,
    /// Begun with the tile.
    pub(super) scratch: &'a mut BlockScratch,
    pub(super) partial: &'a mut [f32],
}

// === impl AttendBlock ===

impl Kernel for AttendBlock<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) {
        // SAFETY: the caller's.
        unsafe {
            match self.next.and_then(|next| NextKeys::of(self.tile, next)) {
                Some(keys) => self.attend::<V>(&keys),
                None => self.attend::<V>(&()),
            }
        }
    }
}

impl AttendBlock<'_> {
    /// # Safety
    /// As of [`Kernel::run`].
    #[inline(always)]
    unsafe fn attend<V: Sixteen>(self, ahead: &impl Ahead) {
        let Self {
            tile,
            block,
            places,
            next: _,
            scratch,
            partial,
        } = self;
        let rows = tile.rows();
        let (key_dim, value_dim) = (tile.padded_key_dim(), tile.padded_value_dim());
        let (lens, values_out) = partial.split_at_mut(2 * tile.padded_rows());
        let (maxima, sums) = lens.split_at_mut(tile.padded_rows());
        maxima.fill(f32::NEG_INFINITY);
        sums.fill(0.0);
        let Parts {
            keys,
            widened,
            weights,
            queries,
            depths,
            tiles,
        } = scratch.parts(rows, key_dim, value_dim);

        let Range {
            start: first,
            end: last,
        } = tile.rows_of(block);
        // SAFETY: on the queue, with the instruction set, by the caller; sizes are those of `Parts`.
        unsafe {
            let products = Products {
                tile,
                rows: first..last,
                places,
                ahead,
            };
            match tile.op.multiplies {
                Multiplies::Floats => products.score::<V>(queries, keys, depths, weights),
                Multiplies::Pairs => products.score_pairs(queries, keys, depths, weights),
                Multiplies::Tiles => products.score_tiles(queries, keys, tiles, weights),
            }
            depths.clear();
            for row in first..last {
                let scores = &mut weights[row * ATTN_BLOCK_LEN..(row + 1) * ATTN_BLOCK_LEN];
                let visible = tile.visible(row, block);
                if let Some(cap) = tile.op.softcap {
                    cap_row::<V>(scores, cap);
                }
                (maxima[row], sums[row]) = exp_row::<V>(scores, &visible);
                depths.push(visible);
            }
            match tile.op.multiplies {
                Multiplies::Floats => products.weigh::<V>(weights, depths, widened, values_out),
                Multiplies::Pairs => products.weigh_pairs(weights, depths, widened, values_out),
                Multiplies::Tiles => {
                    products.weigh_tiles(weights, depths, widened, tiles, values_out);
                }
            }
        }
    }
}

/// The tile's queries, scaled.
///
/// # Safety
/// On the queue.
unsafe fn load_queries(tile: &Tile<'_>, out: &mut [f32]) {
    // SAFETY: on the queue; the op writes only its output.
    let q = unsafe { tile.op.q.slice() };
    for (row, out) in out.chunks_exact_mut(tile.padded_key_dim()).enumerate() {
        let q = &q[tile.span_of(row, tile.op.q_row_stride, tile.op.layer.head_dim)];
        out.iter_mut()
            .zip(q)
            .for_each(|(out, q)| *out = q * tile.op.scale);
    }
}

/// Soft-caps the scores of a row.
///
/// # Safety
/// The instruction set of `V`.
#[inline(always)]
unsafe fn cap_row<V: Sixteen>(scores: &mut [f32], cap: f32) {
    for chunk in scores.as_chunks_mut::<LANES>().0 {
        // SAFETY: the caller's; chunks are whole vectors.
        unsafe { soft_cap(V::load(chunk.as_ptr()), cap).store(chunk.as_mut_ptr()) };
    }
}

/// Turns the scores of the `visible` keys into `exp(score − max)` and returns the maximum
/// and their sum.
///
/// # Safety
/// The instruction set of `V`.
#[inline(always)]
unsafe fn exp_row<V: Sixteen>(scores: &mut [f32], visible: &Range<usize>) -> (f32, f32) {
    if visible.len() < scores.len() {
        scores[..visible.start].fill(f32::NEG_INFINITY);
        scores[visible.end..].fill(f32::NEG_INFINITY);
    }
    let chunks = scores.as_chunks_mut::<LANES>().0;
    // SAFETY: the caller's; chunks are whole vectors.
    unsafe {
        let mut largest = V::splat(f32::NEG_INFINITY);
        for chunk in &*chunks {
            largest = largest.max(V::load(chunk.as_ptr()));
        }
        let max = largest.largest();
        let mut sum = V::splat(0.0);
        for chunk in chunks {
            let weight = V::load(chunk.as_ptr()).sub(V::splat(max)).exp();
            weight.store(chunk.as_mut_ptr());
            sum = sum.add(weight);
        }
        (max, sum.sum())
    }
}
