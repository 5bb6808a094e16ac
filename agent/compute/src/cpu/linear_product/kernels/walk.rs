//! Expands the weights of a packed block in k order. The bytes are those of `pack::layout`; the values
//! are those of `quant::dequantize`, bit for bit but for the sign of zeros, which no sum shows.
//!
//! Loops over the `W` vectors and over rows are indexed with constant bounds, here and in
//! [`super::sink`]: they unroll, and the vectors stay in registers. Iterator chains left them in
//! memory, at a quarter of the speed.

#![allow(clippy::needless_range_loop, reason = "see above")]

mod codes;

use super::sink::{PairSink, Sink};
use crate::cpu::pack::BLOCK_LANES;
use crate::cpu::pack::layout::{F8_HEADER, FLOATS, HALVES, MXFP4_GROUP, WORDS};
use crate::cpu::simd::Codes;
use crate::quant::E2M1_TWICE;
pub(super) use codes::{CodeWalk, Q4_0, Q4_1, Q4K, Q6K, Q8_0};
use codes::{products, take_nibbles, times};
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::ops::Range;

const CACHE_LINE: usize = 64;

/// Bytes from words that are expanded to those asked for: some 100 ns of one row at 30 GB/s, and a tenth of a level-1 cache.
const AHEAD: usize = 3072;

/// The lanes `[lane, lane + W · V::LANES)` of a packed block.
#[derive(Clone, Copy)]
pub(super) struct Lanes {
    pub(super) block: *const u8,
    pub(super) lane: usize,
}

/// A packed format.
///
/// # Safety
/// `lanes` are in a packed block of this format for rows that have the k of `ks`, which begin with a pair in BF16 and
/// with a group in MXFP4. The processor has the instruction set of `V`.
pub(super) trait Walk {
    /// Whole pairs and groups. A tile takes so much of all lanes before the next k: a block is one stream from memory.
    const K_AT_A_TIME: usize = 64;

    unsafe fn walk<V: Codes, const W: usize>(
        lanes: Lanes,
        ks: Range<usize>,
        sink: &mut impl Sink<V, W>,
    );
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Bf16;
pub(super) struct F8E4M3;
pub(super) struct Mxfp4;

/// Takes pairs of integers apart, and scales them.
struct Scaled<'a, V, S, const W: usize> {
    scales: [V; W],
    sink: &'a mut S,
}

impl Lanes {
    /// A block's lanes, `W` vectors at a time.
    #[inline(always)]
    pub(super) fn all<V: Codes, const W: usize>(block: *const u8) -> impl Iterator<Item = Self> {
        (0..BLOCK_LANES / V::LANES / W).map(move |i| Self {
            block,
            lane: i * W * V::LANES,
        })
    }

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

    /// Words that take longer to expand than to read, with a call for those to come: of such a stream too few lines are
    /// in a processor's window to keep memory busy, and its own prefetchers stay behind.
    #[inline(always)]
    unsafe fn packed_words<V: Codes, const W: usize>(self, row: usize) -> [V::Words; W] {
        let ahead = self.block.wrapping_add(row + self.lane * 4 + AHEAD);
        for line in (0..W * V::LANES * 4).step_by(CACHE_LINE) {
            // SAFETY: a hint, about any address; SSE is part of x86-64.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(line).cast()) };
        }
        // SAFETY: by the contract of `read`.
        unsafe { self.words::<V, W>(row) }
    }

    #[inline(always)]
    unsafe fn words<V: Codes, const W: usize>(self, row: usize) -> [V::Words; W] {
        // SAFETY: by the contract of `read`.
        unsafe { self.read::<V, _, W>(row, 4, |at| V::load_words(at)) }
    }
}

impl Walk for F32 {
    /// Mostly panels, which are in the cache.
    const K_AT_A_TIME: usize = usize::MAX;

    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(
        lanes: Lanes,
        ks: Range<usize>,
        sink: &mut impl Sink<V, W>,
    ) {
        for i in ks {
            // SAFETY: row `i` of a row of 32 f32 for each k.
            unsafe { sink.take(lanes.f32(i * FLOATS)) };
        }
    }
}

impl Walk for F16 {
    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(
        lanes: Lanes,
        ks: Range<usize>,
        sink: &mut impl Sink<V, W>,
    ) {
        for i in ks {
            // SAFETY: row `i` of a row of 32 f16 for each k.
            unsafe { sink.take(lanes.f16(i * HALVES)) };
        }
    }
}

impl Walk for Bf16 {
    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(
        lanes: Lanes,
        ks: Range<usize>,
        sink: &mut impl Sink<V, W>,
    ) {
        for pair in ks.start / 2..ks.end.div_ceil(2) {
            // SAFETY: row `pair` of a row of 32 words for each two k.
            unsafe {
                let words = lanes.words::<V, W>(pair * WORDS);
                let mut weights = [V::splat(0.0); W];
                for i in 0..W {
                    weights[i] = V::bf16_low(words[i]);
                }
                sink.take(weights);
                if pair * 2 + 1 < ks.end {
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
    unsafe fn walk<V: Codes, const W: usize>(
        lanes: Lanes,
        ks: Range<usize>,
        sink: &mut impl Sink<V, W>,
    ) {
        // SAFETY: a packed block begins with this number, which is 1 at least.
        let scale_len = unsafe { lanes.block.cast::<usize>().read_unaligned() };
        let mut k = ks.start;
        while k < ks.end {
            let (group, first) = (k / scale_len, k % scale_len);
            let end = scale_len.min(first + ks.end - k);
            let at = F8_HEADER + group * (FLOATS + scale_len * BLOCK_LANES);
            // SAFETY: a group behind whole ones: a row of scales, and `end` rows of bytes at least.
            unsafe {
                let scales = lanes.f32::<V, W>(at);
                for i in first..end {
                    let values = lanes.f8(at + FLOATS + i * BLOCK_LANES);
                    sink.take(products(scales, values));
                }
            }
            k += end - first;
        }
    }
}

impl Walk for Mxfp4 {
    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(
        lanes: Lanes,
        ks: Range<usize>,
        sink: &mut impl Sink<V, W>,
    ) {
        for group in ks.start / 32..ks.end / 32 {
            let group = group * MXFP4_GROUP;
            // SAFETY: a group of 32 k: a row of scales, four rows of words.
            unsafe {
                let scales = times(lanes.bf16(group), 0.5);
                let mut scaled = Scaled { scales, sink };
                take_nibbles(lanes, group + HALVES, Some(&E2M1_TWICE), &mut scaled);
            }
        }
    }
}

impl<V: Codes, S: Sink<V, W>, const W: usize> PairSink<V, W> for Scaled<'_, V, S, W> {
    #[inline(always)]
    unsafe fn take(&mut self, pairs: [V::Words; W]) {
        for half in [0x0000_0001, 0x0001_0000] {
            let mut weights = self.scales;
            for i in 0..W {
                // SAFETY: the instruction set is there.
                weights[i] = unsafe {
                    let zero = V::splat_word(0);
                    let value = V::add_products(zero, pairs[i], V::splat_word(half));
                    weights[i].mul(V::to_f32(value))
                };
            }
            // SAFETY: the low half is of the first k of two.
            unsafe { self.sink.take(weights) };
        }
    }
}
