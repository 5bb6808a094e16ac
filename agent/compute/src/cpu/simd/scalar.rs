//! Eight lanes in an array, for any processor and as the other implementations' reference.
//! `mul_add` is rounded once everywhere, by a library call where the target has no such
//! instruction: right, not fast.

use super::exp::exp;
use super::sixteen::Eight;
use super::{Codes, Simd};
use crate::e4m3;
use half::{bf16, f16};
use std::array::from_fn;

#[derive(Clone, Copy)]
pub(crate) struct Scalar([f32; 8]);

type Words = [u32; 8];

/// The low and the high half of a word.
fn halves(word: u32) -> [i16; 2] {
    let [a, b, c, d] = word.to_le_bytes();
    [i16::from_le_bytes([a, b]), i16::from_le_bytes([c, d])]
}

fn pair([low, high]: [i16; 2]) -> u32 {
    u32::from(low.cast_unsigned()) | u32::from(high.cast_unsigned()) << 16
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
    unsafe fn even_bf16(self) -> Self {
        Self(self.0.map(|pair| f32::from_bits(pair.to_bits() << 16)))
    }
    #[inline(always)]
    unsafe fn odd_bf16(self) -> Self {
        Self(self.0.map(|pair| f32::from_bits(pair.to_bits() & !0xffff)))
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
    unsafe fn store_f16(self, at: *mut u16) {
        let halves = self.0.map(|x| f16::from_f32(x).to_bits());
        // SAFETY: the trait's contract: room for eight f16 at `at`.
        unsafe { at.cast::<[u16; 8]>().write_unaligned(halves) };
    }
    #[inline(always)]
    unsafe fn store_bf16(self, at: *mut u16) {
        let halves = self.0.map(|x| bf16::from_f32(x).to_bits());
        // SAFETY: the trait's contract: room for eight bf16 at `at`.
        unsafe { at.cast::<[u16; 8]>().write_unaligned(halves) };
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
    unsafe fn store_words(words: Self::Words, at: *mut u8) {
        // SAFETY: the trait's contract: `at` has room for eight u32.
        unsafe { at.cast::<Words>().write_unaligned(words) }
    }
    #[inline(always)]
    unsafe fn splat_word(word: u32) -> Self::Words {
        [word; 8]
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
    unsafe fn and(a: Self::Words, b: Self::Words) -> Self::Words {
        from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    unsafe fn or(a: Self::Words, b: Self::Words) -> Self::Words {
        from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    unsafe fn look_up(table: &[i8; 16], bytes: Self::Words) -> Self::Words {
        let value = |byte: u8| table[usize::from(byte)].to_le_bytes()[0];
        bytes.map(|w| u32::from_le_bytes(w.to_le_bytes().map(value)))
    }
    #[inline(always)]
    unsafe fn even_bytes(words: Self::Words) -> Self::Words {
        words.map(|w| pair(halves(w).map(|half| half << 8 >> 8)))
    }
    #[inline(always)]
    unsafe fn odd_bytes(words: Self::Words) -> Self::Words {
        words.map(|w| pair(halves(w).map(|half| half >> 8)))
    }
    #[inline(always)]
    unsafe fn add_products(sums: Self::Words, a: Self::Words, b: Self::Words) -> Self::Words {
        from_fn(|i| {
            let [[a0, a1], [b0, b1]] = [a[i], b[i]].map(|w| halves(w).map(i32::from));
            let sum = (a0 * b0).wrapping_add(a1 * b1).cast_unsigned();
            sums[i].wrapping_add(sum)
        })
    }
    #[inline(always)]
    #[allow(clippy::cast_precision_loss, reason = "rounded, as documented")]
    unsafe fn to_f32(sums: Self::Words) -> Self {
        Self(sums.map(|sum| sum.cast_signed() as f32))
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
