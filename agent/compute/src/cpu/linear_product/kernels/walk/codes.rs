//! What formats make of codes of four and six bits.

#![allow(clippy::needless_range_loop, reason = "as in the walk")]

use crate::cpu::linear_product::kernels::sink::Sink;
use crate::cpu::simd::Codes;

/// How a format makes weights of the nibbles at bit `AT`.
pub(super) trait NibbleWeights<V: Codes, const W: usize> {
    unsafe fn at<const AT: u32>(&self, words: [V::Words; W]) -> [V; W];
}

/// `scale · (code − 8)`.
pub(super) struct Centred<V, const W: usize> {
    pub(super) scales: [V; W],
}

/// `scale · value`, of four bits as E2M1.
pub(super) struct Floats<V, const W: usize> {
    pub(super) scales: [V; W],
}

/// `scale · code + minimum`.
pub(super) struct Shifted<V, const W: usize> {
    pub(super) scales: [V; W],
    pub(super) minima: [V; W],
}

impl<V: Codes, const W: usize> NibbleWeights<V, W> for Centred<V, W> {
    #[inline(always)]
    unsafe fn at<const AT: u32>(&self, words: [V::Words; W]) -> [V; W] {
        let mut weights = self.scales;
        for i in 0..W {
            // SAFETY: the instruction set is there.
            weights[i] = unsafe { weights[i].mul(V::nibble_less_8::<AT>(words[i])) };
        }
        weights
    }
}

impl<V: Codes, const W: usize> NibbleWeights<V, W> for Floats<V, W> {
    #[inline(always)]
    unsafe fn at<const AT: u32>(&self, words: [V::Words; W]) -> [V; W] {
        let mut weights = self.scales;
        for i in 0..W {
            // SAFETY: the instruction set is there.
            weights[i] = unsafe { weights[i].mul(V::e2m1::<AT>(words[i])) };
        }
        weights
    }
}

impl<V: Codes, const W: usize> NibbleWeights<V, W> for Shifted<V, W> {
    #[inline(always)]
    unsafe fn at<const AT: u32>(&self, words: [V::Words; W]) -> [V; W] {
        let mut weights = self.scales;
        for i in 0..W {
            // SAFETY: the instruction set is there.
            weights[i] = unsafe { weights[i].fma(V::nibble::<AT>(words[i]), self.minima[i]) };
        }
        weights
    }
}

impl<V: Codes, const W: usize> Shifted<V, W> {
    /// Eight k of codes of six bits: four of each are in `nibbles`, and the two above in the same byte
    /// of `high`, first of even k, then of odd.
    #[inline(always)]
    pub(super) unsafe fn walk_six_bits(
        &self,
        nibbles: [V::Words; W],
        high: [[V::Words; W]; 2],
        sink: &mut impl Sink<V, W>,
    ) {
        let [mut even, mut odd] = high;
        // SAFETY: the instruction set is there, and k ascends.
        unsafe {
            for i in 0..W {
                even[i] = V::six_bit_codes(nibbles[i], even[i]);
                odd[i] = V::six_bit_codes(V::shift_right::<4>(nibbles[i]), odd[i]);
            }
            sink.take(self.byte::<0>(even));
            sink.take(self.byte::<0>(odd));
            sink.take(self.byte::<8>(even));
            sink.take(self.byte::<8>(odd));
            sink.take(self.byte::<16>(even));
            sink.take(self.byte::<16>(odd));
            sink.take(self.byte::<24>(even));
            sink.take(self.byte::<24>(odd));
        }
    }

    /// Of the codes in the bytes from bit `AT` on.
    #[inline(always)]
    unsafe fn byte<const AT: u32>(&self, words: [V::Words; W]) -> [V; W] {
        let mut weights = self.scales;
        for i in 0..W {
            // SAFETY: the instruction set is there.
            weights[i] = unsafe { weights[i].fma(V::byte::<AT>(words[i]), self.minima[i]) };
        }
        weights
    }
}

#[inline(always)]
pub(super) unsafe fn products<V: Codes, const W: usize>(mut a: [V; W], b: [V; W]) -> [V; W] {
    for i in 0..W {
        // SAFETY: the instruction set is there.
        a[i] = unsafe { a[i].mul(b[i]) };
    }
    a
}
