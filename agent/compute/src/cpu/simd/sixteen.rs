//! Sixteen lanes, which all ops but packed linears are written over: one vector of AVX-512, or a
//! pair of vectors of eight.

use super::Simd;

/// Lanes of every [`Sixteen`].
pub(crate) const LANES: usize = 16;

/// A vector of [`LANES`] lanes.
///
/// # Safety
/// As [`Simd`].
pub(crate) trait Sixteen: Simd {
    /// Registers suffice for 6 × 4 vectors of a tile, not just 2 × 2.
    const MANY_REGISTERS: bool;

    /// Turns sixteen rows into sixteen columns.
    unsafe fn transpose(rows: [Self; LANES]) -> [Self; LANES];

    #[inline(always)]
    unsafe fn to_array(self) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        // SAFETY: sixteen elements; the instruction set by the trait's contract.
        unsafe { self.store(lanes.as_mut_ptr()) };
        lanes
    }

    /// The first `rest.len()` lanes from `rest`, the others `fill`.
    #[inline(always)]
    unsafe fn load_part(rest: &[f32], fill: f32) -> Self {
        let mut lanes = [fill; LANES];
        lanes[..rest.len()].copy_from_slice(rest);
        // SAFETY: sixteen elements; the instruction set by the trait's contract.
        unsafe { Self::load(lanes.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn store_part(self, rest: &mut [f32]) {
        // SAFETY: the trait's contract.
        let lanes = unsafe { self.to_array() };
        rest.copy_from_slice(&lanes[..rest.len()]);
    }

    /// The first lanes from `from`, sixteen values at most, the others 0.
    #[inline(always)]
    unsafe fn load_up_to(from: &[f32]) -> Self {
        // SAFETY: sixteen elements where it is a whole vector; the trait's contract.
        unsafe {
            if from.len() == LANES {
                Self::load(from.as_ptr())
            } else {
                Self::load_part(from, 0.0)
            }
        }
    }

    /// The first lanes to `to`, sixteen values at most.
    #[inline(always)]
    unsafe fn store_up_to(self, to: &mut [f32]) {
        // SAFETY: sixteen elements where it is a whole vector; the trait's contract.
        unsafe {
            if to.len() == LANES {
                self.store(to.as_mut_ptr());
            } else {
                self.store_part(to);
            }
        }
    }

    /// Sum of the lanes: halves onto halves.
    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the trait's contract.
        let mut lanes = unsafe { self.to_array() };
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                lanes[i] += lanes[i + half];
            }
        }
        lanes[0]
    }

    /// The largest lane, found as [`Simd::max`] of halves and halves.
    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        // SAFETY: the trait's contract.
        let mut lanes = unsafe { self.to_array() };
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                let other = lanes[i + half];
                lanes[i] = if lanes[i] > other { lanes[i] } else { other };
            }
        }
        lanes[0]
    }
}

/// A vector of eight lanes, fit to be half of a [`Pair`].
///
/// # Safety
/// As [`Simd`].
pub(crate) trait Eight: Simd {
    /// Turns eight rows into eight columns.
    unsafe fn transpose(rows: [Self; 8]) -> [Self; 8];
}

/// Lanes 0..8 and 8..16.
#[derive(Clone, Copy)]
pub(crate) struct Pair<V>(V, V);

impl<V: Eight> Simd for Pair<V> {
    const LANES: usize = 2 * V::LANES;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(V::splat(x), V::splat(x)) }
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(V::load(at), V::load(at.add(V::LANES))) }
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(V::load_f16(at), V::load_f16(at.add(V::LANES))) }
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(V::load_bf16(at), V::load_bf16(at.add(V::LANES))) }
    }
    #[inline(always)]
    unsafe fn even_bf16(self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(self.0.even_bf16(), self.1.even_bf16()) }
    }
    #[inline(always)]
    unsafe fn odd_bf16(self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(self.0.odd_bf16(), self.1.odd_bf16()) }
    }
    #[inline(always)]
    unsafe fn load_f8_part(at: *const u8) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(V::load_f8_part(at), V::load_f8_part(at.add(V::LANES))) }
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the trait's contract.
        unsafe {
            self.0.store(at);
            self.1.store(at.add(V::LANES));
        }
    }
    #[inline(always)]
    unsafe fn store_f16(self, at: *mut u16) {
        // SAFETY: the trait's contract.
        unsafe {
            self.0.store_f16(at);
            self.1.store_f16(at.add(V::LANES));
        }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, at: *mut u16) {
        // SAFETY: the trait's contract.
        unsafe {
            self.0.store_bf16(at);
            self.1.store_bf16(at.add(V::LANES));
        }
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(self.0.add(b.0), self.1.add(b.1)) }
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(self.0.sub(b.0), self.1.sub(b.1)) }
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(self.0.mul(b.0), self.1.mul(b.1)) }
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(self.0.div(b.0), self.1.div(b.1)) }
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(self.0.fma(b.0, c.0), self.1.fma(b.1, c.1)) }
    }
    #[inline(always)]
    unsafe fn max(self, b: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(self.0.max(b.0), self.1.max(b.1)) }
    }
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        // SAFETY: the trait's contract.
        unsafe { Self(self.0.exp(), self.1.exp()) }
    }
    #[inline(always)]
    unsafe fn select_below(self, bound: Self, less: Self, other: Self) -> Self {
        // SAFETY: the trait's contract.
        unsafe {
            Self(
                self.0.select_below(bound.0, less.0, other.0),
                self.1.select_below(bound.1, less.1, other.1),
            )
        }
    }
}

impl<V: Eight> Sixteen for Pair<V> {
    const MANY_REGISTERS: bool = false;

    #[inline(always)]
    unsafe fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        // SAFETY: the trait's contract.
        unsafe {
            let (mut left, mut right) = ([rows[0].0; LANES], [rows[0].1; LANES]);
            for (i, row) in rows.into_iter().enumerate() {
                (left[i], right[i]) = (row.0, row.1);
            }
            let (left, right) = (left.as_chunks().0, right.as_chunks().0);
            let (top_left, low_left) = (V::transpose(left[0]), V::transpose(left[1]));
            let (top_right, low_right) = (V::transpose(right[0]), V::transpose(right[1]));
            let mut out = rows;
            for i in 0..8 {
                out[i] = Self(top_left[i], low_left[i]);
                out[8 + i] = Self(top_right[i], low_right[i]);
            }
            out
        }
    }
}
