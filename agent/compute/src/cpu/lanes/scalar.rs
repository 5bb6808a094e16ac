//! Sixteen lanes without vector instructions: the reference, and the path of old processors.

use super::{LANES, Lanes};
use crate::cpu::kernels::exp::exp;
use half::{bf16, f16};

#[derive(Clone, Copy)]
pub(super) struct Scalar([f32; LANES]);

impl Scalar {
    #[inline(always)]
    fn zip(self, b: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], b.0[i])))
    }
}

impl Lanes for Scalar {
    const MANY_REGISTERS: bool = false;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self([x; LANES])
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the trait's contract; an array needs its element's alignment only.
        Self(unsafe { at.cast::<[f32; LANES]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Self {
        // SAFETY: the trait's contract.
        let bits = unsafe { at.cast::<[u16; LANES]>().read_unaligned() };
        Self(bits.map(|bits| f16::from_bits(bits).to_f32()))
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> Self {
        // SAFETY: the trait's contract.
        let bits = unsafe { at.cast::<[u16; LANES]>().read_unaligned() };
        Self(bits.map(|bits| bf16::from_bits(bits).to_f32()))
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the trait's contract.
        unsafe { at.cast::<[f32; LANES]>().write_unaligned(self.0) };
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        self.zip(b, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        self.zip(b, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        self.zip(b, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        self.zip(b, |a, b| a / b)
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].mul_add(b.0[i], c.0[i])))
    }
    #[inline(always)]
    unsafe fn max(self, b: Self) -> Self {
        self.zip(b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        Self(self.0.map(exp))
    }
    #[inline(always)]
    unsafe fn transpose(rows: [Self; LANES]) -> [Self; LANES] {
        std::array::from_fn(|i| Self(std::array::from_fn(|j| rows[j].0[i])))
    }
}
