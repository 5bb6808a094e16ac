//! Eight lanes in an array, for any processor and as the other implementations' reference.
//! `mul_add` is rounded once everywhere, by a library call where the target has no such
//! instruction: right, not fast.

use super::exp::exp;
use super::sixteen::Eight;
use super::{Codes, Simd};
use crate::e4m3;
use crate::quant::E2M1;
use half::f16;
use std::array::from_fn;

#[derive(Clone, Copy)]
pub(crate) struct Scalar([f32; 8]);

type Words = [u32; 8];

#[allow(clippy::cast_precision_loss, reason = "codes have at most eight bits")]
fn converted(codes: Words, mask: u32, less: f32) -> Scalar {
    Scalar(codes.map(|w| (w & mask) as f32 - less))
}

impl Simd for Scalar {
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self([x; 8])
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the trait's contract: eight f32 lie at `at`.
        unsafe { Self(at.cast::<[f32; 8]>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Self {
        // SAFETY: the trait's contract: eight f16 lie at `at`.
        let halves = unsafe { at.cast::<[u16; 8]>().read_unaligned() };
        Self(halves.map(|h| f16::from_bits(h).to_f32()))
    }
    #[inline(always)]
    unsafe fn load_bf16(at: *const u16) -> Self {
        // SAFETY: the trait's contract: eight bf16 lie at `at`.
        let halves = unsafe { at.cast::<[u16; 8]>().read_unaligned() };
        Self(halves.map(|h| f32::from_bits(u32::from(h) << 16)))
    }
    #[inline(always)]
    unsafe fn load_f8_part(at: *const u8) -> Self {
        // SAFETY: the trait's contract: eight bytes lie at `at`.
        let codes = unsafe { at.cast::<[u8; 8]>().read() };
        Self(codes.map(|code| e4m3::as_f16(code).to_f32()))
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the trait's contract: `at` has room for eight f32.
        unsafe { at.cast::<[f32; 8]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, b: Self) -> Self {
        Self(from_fn(|i| self.0[i] + b.0[i]))
    }
    #[inline(always)]
    unsafe fn sub(self, b: Self) -> Self {
        Self(from_fn(|i| self.0[i] - b.0[i]))
    }
    #[inline(always)]
    unsafe fn mul(self, b: Self) -> Self {
        Self(from_fn(|i| self.0[i] * b.0[i]))
    }
    #[inline(always)]
    unsafe fn div(self, b: Self) -> Self {
        Self(from_fn(|i| self.0[i] / b.0[i]))
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        Self(from_fn(|i| self.0[i].mul_add(b.0[i], c.0[i])))
    }
    #[inline(always)]
    unsafe fn max(self, b: Self) -> Self {
        Self(from_fn(|i| {
            if self.0[i] > b.0[i] {
                self.0[i]
            } else {
                b.0[i]
            }
        }))
    }
    #[inline(always)]
    unsafe fn exp(self) -> Self {
        Self(self.0.map(exp))
    }
    #[inline(always)]
    unsafe fn select_below(self, bound: Self, less: Self, other: Self) -> Self {
        Self(from_fn(|i| {
            if self.0[i] < bound.0[i] {
                less.0[i]
            } else {
                other.0[i]
            }
        }))
    }
}

impl Codes for Scalar {
    type Words = Words;

    #[inline(always)]
    unsafe fn load_i8(at: *const u8) -> Self {
        // SAFETY: the trait's contract: eight bytes lie at `at`.
        Self(unsafe { at.cast::<[i8; 8]>().read() }.map(f32::from))
    }
    #[inline(always)]
    unsafe fn load_u8(at: *const u8) -> Self {
        // SAFETY: the trait's contract: eight bytes lie at `at`.
        Self(unsafe { at.cast::<[u8; 8]>().read() }.map(f32::from))
    }

    #[inline(always)]
    unsafe fn load_words(at: *const u8) -> Self::Words {
        // SAFETY: the trait's contract: eight u32 lie at `at`.
        unsafe { at.cast::<Words>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn shift_left<const BITS: u32>(words: Self::Words) -> Self::Words {
        words.map(|w| w << BITS)
    }
    #[inline(always)]
    unsafe fn shift_right<const BITS: u32>(words: Self::Words) -> Self::Words {
        words.map(|w| w >> BITS)
    }
    #[inline(always)]
    unsafe fn nibble<const AT: u32>(words: Self::Words) -> Self {
        converted(words.map(|w| w >> AT), 15, 0.0)
    }
    #[inline(always)]
    unsafe fn nibble_less_8<const AT: u32>(words: Self::Words) -> Self {
        converted(words.map(|w| w >> AT), 15, 8.0)
    }
    #[inline(always)]
    unsafe fn e2m1<const AT: u32>(words: Self::Words) -> Self {
        Self(words.map(|w| E2M1[(w >> AT & 15) as usize]))
    }
    #[inline(always)]
    unsafe fn six_bit_codes(low: Self::Words, high: Self::Words) -> Self::Words {
        from_fn(|i| (low[i] & 0x0f0f_0f0f) | (high[i] & 0x3030_3030))
    }
    #[inline(always)]
    unsafe fn byte<const AT: u32>(words: Self::Words) -> Self {
        converted(words.map(|w| w >> AT), 255, 0.0)
    }
    #[inline(always)]
    unsafe fn bf16_low(words: Self::Words) -> Self {
        Self(words.map(|w| f32::from_bits(w << 16)))
    }
    #[inline(always)]
    unsafe fn bf16_high(words: Self::Words) -> Self {
        Self(words.map(|w| f32::from_bits(w & 0xffff_0000)))
    }
}

impl Eight for Scalar {
    #[inline(always)]
    unsafe fn transpose(rows: [Self; 8]) -> [Self; 8] {
        from_fn(|i| Self(from_fn(|j| rows[j].0[i])))
    }
}
