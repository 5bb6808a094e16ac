//! Expands the weights of a packed block in k order. The bytes are those of `pack::layout`; the values
//! are those of `quant::dequantize`, bit for bit but for the sign of zeros, which no sum shows.
//!
//! Loops over the `W` vectors and over rows are indexed with constant bounds, here and in
//! [`super::sink`]: they unroll, and the vectors stay in registers. Iterator chains left them in
//! memory, at a quarter of the speed.

#![allow(clippy::needless_range_loop, reason = "see above")]

mod codes;

use super::sink::Sink;
use crate::cpu::pack::BLOCK_LANES;
use crate::cpu::pack::layout::{
    F8_HEADER, FLOATS, HALVES, MXFP4_GROUP, Q4_0_GROUP, Q4_1_GROUP, Q4K_GROUP, Q4K_HEADER,
    Q6K_GROUP, Q6K_HEADER, Q8_0_GROUP, WORDS,
};
use crate::cpu::simd::Codes;
use codes::{Centred, Floats, NibbleWeights, Shifted, products};

/// The lanes `[lane, lane + W · V::LANES)` of a packed block.
#[derive(Clone, Copy)]
pub(super) struct Lanes {
    pub(super) block: *const u8,
    pub(super) lane: usize,
}

/// A packed format.
///
/// # Safety
/// `lanes` are in a packed block of this format for rows of `k` values, and the processor has the
/// instruction set of `V`.
pub(super) trait Walk {
    unsafe fn walk<V: Codes, const W: usize>(lanes: Lanes, k: usize, sink: &mut impl Sink<V, W>);
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Bf16;
pub(super) struct F8E4M3;
pub(super) struct Q8_0;
pub(super) struct Q4_0;
pub(super) struct Q4_1;
pub(super) struct Q4K;
pub(super) struct Q6K;
pub(super) struct Mxfp4;

impl Lanes {
    /// `W` vectors of a row of elements of `size` bytes, which begins `row` bytes into the block.
    ///
    /// # Safety
    /// The block has such a row there; `load` reads a vector of it.
    #[inline(always)]
    unsafe fn read<V: Codes, T: Copy, const W: usize>(
        self,
        row: usize,
        size: usize,
        load: impl Fn(*const u8) -> T,
    ) -> [T; W] {
        // SAFETY: by this function's contract.
        let first = unsafe { self.block.add(row + self.lane * size) };
        let mut vectors = [load(first); W];
        for i in 1..W {
            // SAFETY: by this function's contract.
            vectors[i] = load(unsafe { first.add(i * V::LANES * size) });
        }
        vectors
    }

    #[inline(always)]
    unsafe fn f16<V: Codes, const W: usize>(self, row: usize) -> [V; W] {
        // SAFETY: by the contract of `read`.
        unsafe { self.read::<V, _, W>(row, 2, |at| V::load_f16(at.cast())) }
    }

    #[inline(always)]
    unsafe fn f32<V: Codes, const W: usize>(self, row: usize) -> [V; W] {
        // SAFETY: by the contract of `read`.
        unsafe { self.read::<V, _, W>(row, 4, |at| V::load(at.cast())) }
    }

    #[inline(always)]
    unsafe fn bf16<V: Codes, const W: usize>(self, row: usize) -> [V; W] {
        // SAFETY: by the contract of `read`.
        unsafe { self.read::<V, _, W>(row, 2, |at| V::load_bf16(at.cast())) }
    }

    #[inline(always)]
    unsafe fn f8<V: Codes, const W: usize>(self, row: usize) -> [V; W] {
        // SAFETY: by the contract of `read`.
        unsafe { self.read::<V, _, W>(row, 1, |at| V::load_f8_part(at)) }
    }

    #[inline(always)]
    unsafe fn i8<V: Codes, const W: usize>(self, row: usize) -> [V; W] {
        // SAFETY: by the contract of `read`.
        unsafe { self.read::<V, _, W>(row, 1, |at| V::load_i8(at)) }
    }

    #[inline(always)]
    unsafe fn u8<V: Codes, const W: usize>(self, row: usize) -> [V; W] {
        // SAFETY: by the contract of `read`.
        unsafe { self.read::<V, _, W>(row, 1, |at| V::load_u8(at)) }
    }

    #[inline(always)]
    unsafe fn words<V: Codes, const W: usize>(self, row: usize) -> [V::Words; W] {
        // SAFETY: by the contract of `read`.
        unsafe { self.read::<V, _, W>(row, 4, |at| V::load_words(at)) }
    }

    /// Thirty-two k of nibbles in four rows of words, lowest first.
    #[inline(always)]
    unsafe fn walk_nibbles<V: Codes, const W: usize>(
        self,
        row: usize,
        sink: &mut impl Sink<V, W>,
        weights: &impl NibbleWeights<V, W>,
    ) {
        for i in 0..4 {
            // SAFETY: by the contract of `read`; the instruction set is there, and k ascends.
            unsafe {
                let mut words = self.words::<V, W>(row + i * WORDS);
                for _half in 0..2 {
                    sink.take(weights.at::<0>(words));
                    sink.take(weights.at::<4>(words));
                    sink.take(weights.at::<8>(words));
                    sink.take(weights.at::<12>(words));
                    for i in 0..W {
                        words[i] = V::shift_right::<16>(words[i]);
                    }
                }
            }
        }
    }
}

impl Walk for F32 {
    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(lanes: Lanes, k: usize, sink: &mut impl Sink<V, W>) {
        for i in 0..k {
            // SAFETY: row `i` of `k` rows of 32 f32.
            unsafe { sink.take(lanes.f32(i * FLOATS)) };
        }
    }
}

impl Walk for F16 {
    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(lanes: Lanes, k: usize, sink: &mut impl Sink<V, W>) {
        for i in 0..k {
            // SAFETY: row `i` of `k` rows of 32 f16.
            unsafe { sink.take(lanes.f16(i * HALVES)) };
        }
    }
}

impl Walk for Bf16 {
    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(lanes: Lanes, k: usize, sink: &mut impl Sink<V, W>) {
        for pair in 0..k.div_ceil(2) {
            // SAFETY: row `pair` of ⌈k / 2⌉ rows of 32 words.
            unsafe {
                let words = lanes.words::<V, W>(pair * WORDS);
                let mut weights = [V::splat(0.0); W];
                for i in 0..W {
                    weights[i] = V::bf16_low(words[i]);
                }
                sink.take(weights);
                if pair * 2 + 1 < k {
                    for i in 0..W {
                        weights[i] = V::bf16_high(words[i]);
                    }
                    sink.take(weights);
                }
            }
        }
    }
}

impl Walk for F8E4M3 {
    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(lanes: Lanes, k: usize, sink: &mut impl Sink<V, W>) {
        // SAFETY: a packed block begins with this number, which is 1 at least.
        let scale_len = unsafe { lanes.block.cast::<usize>().read_unaligned() };
        let (mut at, mut left) = (F8_HEADER, k);
        while left > 0 {
            let len = left.min(scale_len);
            // SAFETY: the next group: a row of scales, `len` rows of bytes.
            unsafe {
                let scales = lanes.f32::<V, W>(at);
                for i in 0..len {
                    let values = lanes.f8(at + FLOATS + i * BLOCK_LANES);
                    sink.take(products(scales, values));
                }
            }
            at += FLOATS + len * BLOCK_LANES;
            left -= len;
        }
    }
}

impl Walk for Q8_0 {
    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(lanes: Lanes, k: usize, sink: &mut impl Sink<V, W>) {
        for group in 0..k / 32 {
            let group = group * Q8_0_GROUP;
            // SAFETY: one of k / 32 groups: a row of scales, 32 rows of bytes.
            unsafe {
                let scales = lanes.f16::<V, W>(group);
                for i in 0..32 {
                    let codes = lanes.i8(group + HALVES + i * BLOCK_LANES);
                    sink.take(products(scales, codes));
                }
            }
        }
    }
}

impl Walk for Q4_0 {
    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(lanes: Lanes, k: usize, sink: &mut impl Sink<V, W>) {
        for group in 0..k / 32 {
            let group = group * Q4_0_GROUP;
            // SAFETY: one of k / 32 groups: a row of scales, four rows of words.
            unsafe {
                let scales = lanes.f16(group);
                lanes.walk_nibbles(group + HALVES, sink, &Centred { scales });
            }
        }
    }
}

impl Walk for Mxfp4 {
    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(lanes: Lanes, k: usize, sink: &mut impl Sink<V, W>) {
        for group in 0..k / 32 {
            let group = group * MXFP4_GROUP;
            // SAFETY: one of k / 32 groups: a row of scales, four rows of words.
            unsafe {
                let scales = lanes.bf16(group);
                lanes.walk_nibbles(group + HALVES, sink, &Floats { scales });
            }
        }
    }
}

impl Walk for Q4_1 {
    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(lanes: Lanes, k: usize, sink: &mut impl Sink<V, W>) {
        for group in 0..k / 32 {
            let group = group * Q4_1_GROUP;
            // SAFETY: one of k / 32 groups: a row of scales, one of minima, four of words.
            unsafe {
                let scales = lanes.f16(group);
                let minima = lanes.f16(group + HALVES);
                lanes.walk_nibbles(group + 2 * HALVES, sink, &Shifted { scales, minima });
            }
        }
    }
}

impl Walk for Q4K {
    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(lanes: Lanes, k: usize, sink: &mut impl Sink<V, W>) {
        for sub in 0..k / 32 {
            let (group, sub) = (sub / 8 * Q4K_GROUP, sub % 8);
            // SAFETY: one of k / 256 groups: scales and minima of the group, then bytes of each of
            // eight sub-blocks, then four rows of words of each.
            unsafe {
                let bytes = group + 2 * HALVES + sub * 2 * BLOCK_LANES;
                let scales = products(lanes.f16::<V, W>(group), lanes.u8(bytes));
                let minima = products(lanes.f16(group + HALVES), lanes.u8(bytes + BLOCK_LANES));
                let minima = products(minima, [V::splat(-1.0); W]);
                let words = group + Q4K_HEADER + sub * 4 * WORDS;
                lanes.walk_nibbles(words, sink, &Shifted { scales, minima });
            }
        }
    }
}

impl Walk for Q6K {
    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(lanes: Lanes, k: usize, sink: &mut impl Sink<V, W>) {
        for sub in 0..k / 16 {
            let (group, sub) = (sub / 16 * Q6K_GROUP, sub % 16);
            // SAFETY: one of k / 256 groups: scales of the group, then bytes of each of sixteen
            // sub-blocks, then three rows of words of each.
            unsafe {
                let bytes = lanes.i8(group + HALVES + sub * BLOCK_LANES);
                let scales = products(lanes.f16::<V, W>(group), bytes);
                let words = group + Q6K_HEADER + sub * 3 * WORDS;
                // scale · (code − 32), as scale · code + minimum: rounded once, too.
                let minima = products(scales, [V::splat(-32.0); W]);
                let weights = Shifted { scales, minima };
                let pairs = lanes.words::<V, W>(words + 2 * WORDS);
                let mut high = [[pairs; 2]; 2];
                for i in 0..W {
                    high[0][1][i] = V::shift_right::<2>(pairs[i]);
                    high[1][0][i] = V::shift_left::<4>(pairs[i]);
                    high[1][1][i] = V::shift_left::<2>(pairs[i]);
                }
                for (row, high) in high.into_iter().enumerate() {
                    let nibbles = lanes.words::<V, W>(words + row * WORDS);
                    weights.walk_six_bits(nibbles, high, sink);
                }
            }
        }
    }
}
