//! Sixteen f32 lanes, the vector that every op here is written over.
//!
//! Reductions run per lane and end in one fixed tree, so all instruction sets give the same bits.
//! A kernel implements [`Kernel`] once; [`Isa::dispatch`] instantiates it inside a function that
//! enables the instruction set, and everything is `inline(always)`, so no vector crosses a call.

mod avx2;
mod avx512;
mod scalar;

use super::isa::Isa;
use avx2::Avx2;
use avx512::Avx512;
use scalar::Scalar;

/// Lanes of every implementation.
pub(super) const LANES: usize = 16;

/// # Safety
/// Every method needs a processor with the implementation's instruction set. Loads and stores need
/// pointers valid for [`LANES`] elements, at any alignment.
pub(super) trait Lanes: Copy {
    /// Registers suffice for 6 × 4 vectors of a tile, not just 2 × 2.
    const MANY_REGISTERS: bool;

    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(at: *const f32) -> Self;
    unsafe fn load_f16(at: *const u16) -> Self;
    unsafe fn load_bf16(at: *const u16) -> Self;
    unsafe fn store(self, at: *mut f32);
    unsafe fn add(self, b: Self) -> Self;
    unsafe fn sub(self, b: Self) -> Self;
    unsafe fn mul(self, b: Self) -> Self;
    unsafe fn div(self, b: Self) -> Self;
    /// `self · b + c`, rounded once.
    unsafe fn fma(self, b: Self, c: Self) -> Self;
    /// The larger; `b` where either is NaN.
    unsafe fn max(self, b: Self) -> Self;
    unsafe fn exp(self) -> Self;
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

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        // SAFETY: the trait's contract.
        let lanes = unsafe { self.to_array() };
        lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
}

/// A computation over any [`Lanes`].
pub(super) trait Kernel {
    type Output;

    /// # Safety
    /// The processor has the instruction set of `V`; further needs are the kernel's own.
    unsafe fn run<V: Lanes>(self) -> Self::Output;
}

// === impl Isa ===

impl Isa {
    /// Runs a kernel compiled for this instruction set.
    ///
    /// # Safety
    /// What the kernel itself needs. The instruction set is there: an `Isa` in use was required or
    /// detected.
    pub(super) unsafe fn dispatch<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            // SAFETY: no instruction set needed; the kernel's needs by the caller.
            Self::Scalar => unsafe { kernel.run::<Scalar>() },
            // SAFETY: this Isa is available; the kernel's needs by the caller.
            Self::Avx2 => unsafe { run_avx2(kernel) },
            // SAFETY: this Isa is available; the kernel's needs by the caller.
            Self::Avx512 | Self::Avx512Bf16 => unsafe { run_avx512(kernel) },
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the instruction set is enabled here.
    unsafe { kernel.run::<Avx2>() }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the instruction set is enabled here.
    unsafe { kernel.run::<Avx512>() }
}

#[cfg(test)]
mod tests;
