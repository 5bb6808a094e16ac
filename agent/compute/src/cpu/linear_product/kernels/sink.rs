//! What becomes of expanded weights, and of codes.

#![allow(clippy::needless_range_loop, reason = "see `super::walk`")]

use super::Tile;
use crate::cpu::pack::BLOCK_LANES;
use crate::cpu::simd::{Codes, Simd};
use std::sync::atomic::{Ordering, compiler_fence};

/// # Safety
/// [`Sink::take`] is called once per k, in order, with the instruction set of `V`.
pub(super) trait Sink<V: Simd, const W: usize> {
    unsafe fn take(&mut self, weights: [V; W]);
}

/// # Safety
/// [`PairSink::take`] is called once per two k, in order, with the instruction set of `V`.
pub(super) trait PairSink<V: Codes, const W: usize> {
    /// The codes of two k as i16.
    unsafe fn take(&mut self, pairs: [V::Words; W]);
}

/// # Safety
/// As [`PairSink`], for 32 k: [`CodeSink::scale`] behind the pairs that it is of.
pub(super) trait CodeSink<V: Codes, const W: usize>: PairSink<V, W> {
    /// A code of those taken since the last call stands for so much; minima, given at the end of the 32 k, are added to
    /// all their weights.
    unsafe fn scale(&mut self, scales: [V; W], minima: Option<[V; W]>);
}

/// A register tile of `ROWS` rows and `W` vectors.
pub(super) struct Product<V, const W: usize, const ROWS: usize> {
    pub(super) sums: [[V; W]; ROWS],
    /// The activations of the next k.
    pub(super) x: *const f32,
}

/// A register tile of integers: of 32 k, which are scaled and added to a tile in memory.
pub(super) struct CodeProduct<V: Codes, const W: usize, const ROWS: usize> {
    sums: [[V::Words; W]; ROWS],
    /// The first lane of the first row.
    tile: *mut f32,
    /// A scale of each row, a scaled sum of each, then their integers.
    group: *const f32,
    /// The activations of the next two k.
    x: *const f32,
}

/// Consecutive rows of a panel, `BLOCK_LANES` apart.
pub(super) struct Panel {
    pub(super) next: *mut f32,
}

impl<V: Simd, const W: usize, const ROWS: usize> Product<V, W, ROWS> {
    #[inline(always)]
    pub(super) unsafe fn new(x: *const f32) -> Self {
        // SAFETY: the caller has the instruction set.
        let sums = unsafe { [[V::splat(0.0); W]; ROWS] };
        Self { sums, x }
    }

    /// Goes on from the sums of a tile, from a lane on.
    #[inline(always)]
    pub(super) unsafe fn load(&mut self, tile: &Tile, lane: usize) {
        for row in 0..ROWS {
            for i in 0..W {
                // SAFETY: the caller has the instruction set, and the tile has the lanes.
                self.sums[row][i] = unsafe { V::load(tile[row].as_ptr().add(lane + i * V::LANES)) };
            }
        }
    }

    /// Adds its sums to those of a tile, from a lane on.
    #[inline(always)]
    pub(super) unsafe fn add(&mut self, tile: &Tile, lane: usize) {
        for row in 0..ROWS {
            for i in 0..W {
                // SAFETY: as above.
                self.sums[row][i] = unsafe {
                    V::load(tile[row].as_ptr().add(lane + i * V::LANES)).add(self.sums[row][i])
                };
            }
        }
    }

    /// Writes its sums to a tile, from a lane on.
    #[inline(always)]
    pub(super) unsafe fn store(&self, tile: &mut Tile, lane: usize) {
        for row in 0..ROWS {
            for i in 0..W {
                // SAFETY: as above.
                unsafe {
                    let out = tile[row].as_mut_ptr().add(lane + i * V::LANES);
                    self.sums[row][i].store(out);
                }
            }
        }
    }
}

impl<V: Simd, const W: usize, const ROWS: usize> Sink<V, W> for Product<V, W, ROWS> {
    #[inline(always)]
    unsafe fn take(&mut self, weights: [V; W]) {
        for row in 0..ROWS {
            // SAFETY: `x` is `[k][ROWS]` and this is one of k calls.
            let x = unsafe { V::splat(*self.x.add(row)) };
            for i in 0..W {
                // SAFETY: the caller has the instruction set.
                self.sums[row][i] = unsafe { x.fma(weights[i], self.sums[row][i]) };
            }
        }
        // SAFETY: at most one past the end, after the last k.
        self.x = unsafe { self.x.add(ROWS) };
    }
}

impl<V: Codes, const W: usize, const ROWS: usize> CodeProduct<V, W, ROWS> {
    #[inline(always)]
    pub(super) unsafe fn new(group: *const f32, tile: *mut f32) -> Self {
        // SAFETY: the caller has the instruction set; behind scales and sums there are integers.
        unsafe {
            Self {
                sums: [[V::splat_word(0); W]; ROWS],
                tile,
                group,
                x: group.add(2 * ROWS),
            }
        }
    }

    /// Adds the scaled sums of a vector to the tile, and the minima.
    #[inline(always)]
    unsafe fn scale_vector<const I: usize>(&mut self, scales: [V; W], minima: Option<[V; W]>) {
        for row in 0..ROWS {
            // Row by row: loads of all rows ahead of their use would take the registers of sums.
            compiler_fence(Ordering::SeqCst);
            // SAFETY: a scale and a sum of each row are there, the tile has the vector, and the caller the instruction set.
            unsafe {
                let at = self.tile.add(row * BLOCK_LANES + I * V::LANES);
                let products = V::to_f32(self.sums[row][I]);
                let scale = scales[I].mul(V::splat(*self.group.add(row)));
                let mut value = scale.fma(products, V::load(at));
                if let Some(minima) = minima {
                    let sum = V::splat(*self.group.add(ROWS + row));
                    value = minima[I].fma(sum, value);
                }
                value.store(at);
                self.sums[row][I] = V::splat_word(0);
            }
        }
    }
}

impl<V: Codes, const W: usize, const ROWS: usize> PairSink<V, W> for CodeProduct<V, W, ROWS> {
    #[inline(always)]
    unsafe fn take(&mut self, pairs: [V::Words; W]) {
        for row in 0..ROWS {
            // SAFETY: pairs of `ROWS` rows for each two k.
            let x = unsafe { V::splat_word((*self.x.add(row)).to_bits()) };
            for i in 0..W {
                // SAFETY: the caller has the instruction set.
                self.sums[row][i] = unsafe { V::add_products(self.sums[row][i], pairs[i], x) };
            }
        }
        // SAFETY: at most one past the end, after the last k.
        self.x = unsafe { self.x.add(ROWS) };
    }
}

impl<V: Codes, const W: usize, const ROWS: usize> CodeSink<V, W> for CodeProduct<V, W, ROWS> {
    #[inline(always)]
    unsafe fn scale(&mut self, scales: [V; W], minima: Option<[V; W]>) {
        // Not a loop: of twelve rows each, its body is too long to be unrolled, and sums would be indexed in memory.
        // SAFETY: by the trait's contract.
        unsafe {
            self.scale_vector::<0>(scales, minima);
            if W > 1 {
                self.scale_vector::<1>(scales, minima);
            }
            if W > 2 {
                self.scale_vector::<2>(scales, minima);
                self.scale_vector::<3>(scales, minima);
            }
        }
    }
}

impl Panel {
    /// Writes a row by `store`, which is given where each vector goes.
    #[inline(always)]
    unsafe fn row<V: Simd, const W: usize>(&mut self, store: impl Fn(usize, *mut f32)) {
        for i in 0..W {
            // SAFETY: the panel has the row, and `W` vectors fit in what is left of it.
            store(i, unsafe { self.next.add(i * V::LANES) });
        }
        // SAFETY: at most one row past the end; wrapping because a half panel ends beyond it.
        self.next = self.next.wrapping_add(BLOCK_LANES);
    }
}

impl<V: Simd, const W: usize> Sink<V, W> for Panel {
    #[inline(always)]
    unsafe fn take(&mut self, weights: [V; W]) {
        // SAFETY: the panel has a row for each k.
        unsafe { self.row::<V, W>(|i, at| weights[i].store(at)) };
    }
}

impl<V: Codes, const W: usize> PairSink<V, W> for Panel {
    #[inline(always)]
    unsafe fn take(&mut self, pairs: [V::Words; W]) {
        // SAFETY: the panel has a row for each call.
        unsafe { self.row::<V, W>(|i, at| V::store_words(pairs[i], at.cast())) };
    }
}

impl<V: Codes, const W: usize> CodeSink<V, W> for Panel {
    #[inline(always)]
    unsafe fn scale(&mut self, scales: [V; W], minima: Option<[V; W]>) {
        for factors in [Some(scales), minima].into_iter().flatten() {
            // SAFETY: as above.
            unsafe { self.row::<V, W>(|i, at| factors[i].store(at)) };
        }
    }
}
