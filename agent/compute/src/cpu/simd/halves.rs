//! Floats of two bytes, for kernels that are written once over both kinds.

use super::Simd;

/// # Safety
/// As [`Simd`].
pub(crate) trait Half {
    unsafe fn load<V: Simd>(at: *const u16) -> V;

    /// Rounded to the nearest.
    unsafe fn store<V: Simd>(values: V, at: *mut u16);
}

pub(crate) struct F16;
pub(crate) struct Bf16;

impl Half for F16 {
    #[inline(always)]
    unsafe fn load<V: Simd>(at: *const u16) -> V {
        // SAFETY: the trait's contract.
        unsafe { V::load_f16(at) }
    }

    #[inline(always)]
    unsafe fn store<V: Simd>(values: V, at: *mut u16) {
        // SAFETY: the trait's contract.
        unsafe { values.store_f16(at) };
    }
}

impl Half for Bf16 {
    #[inline(always)]
    unsafe fn load<V: Simd>(at: *const u16) -> V {
        // SAFETY: the trait's contract.
        unsafe { V::load_bf16(at) }
    }

    #[inline(always)]
    unsafe fn store<V: Simd>(values: V, at: *mut u16) {
        // SAFETY: the trait's contract.
        unsafe { values.store_bf16(at) };
    }
}
