//! Expands the integer codes of a packed block in k order, with the scales that turn sums of their products into those
//! of weights.

#![allow(clippy::needless_range_loop, reason = "as in the walk")]

use super::Lanes;
use crate::cpu::linear_product::kernels::sink::{CodeSink, PairSink};
use crate::cpu::pack::BLOCK_LANES;
use crate::cpu::pack::layout::{
    HALVES, Q4_0_GROUP, Q4_1_GROUP, Q4K_GROUP, Q4K_SUB, Q6K_GROUP, Q6K_SUB, Q8_0_GROUP, WORDS,
};
use crate::cpu::simd::Codes;

/// A packed format whose weights are `scale · code`, or `scale · code + minimum`.
///
/// # Safety
/// As [`super::Walk`], of thirty-two values of k, the group of index `group`.
pub(in super::super) trait CodeWalk {
    /// Whether a walk has to make integers of codes first.
    const EXPANDS: bool = true;
    /// What a panel has of it.
    type Expanded: CodeWalk;

    unsafe fn walk<V: Codes, const W: usize>(
        lanes: Lanes,
        group: usize,
        sink: &mut impl CodeSink<V, W>,
    );
}

pub(in super::super) struct Q8_0;
pub(in super::super) struct Q4_0;
pub(in super::super) struct Q4_1;
pub(in super::super) struct Q4K;
pub(in super::super) struct Q6K;

/// What a sink took, a row each: pairs of i16, scales behind each `SCALE_LEN` k, and minima where there are any.
pub(in super::super) struct Expanded<const SCALE_LEN: usize, const MINIMA: bool>;

/// The values of Q4_0's codes.
static LESS_8: [i8; 16] = [-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7];

impl<const SCALE_LEN: usize, const MINIMA: bool> CodeWalk for Expanded<SCALE_LEN, MINIMA> {
    type Expanded = Self;
    const EXPANDS: bool = false;

    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(
        lanes: Lanes,
        group: usize,
        sink: &mut impl CodeSink<V, W>,
    ) {
        let mut row = group * (16 + 32 / SCALE_LEN + usize::from(MINIMA)) * WORDS;
        for _ in 0..32 / SCALE_LEN {
            for _ in 0..SCALE_LEN / 2 {
                // SAFETY: one of the group's rows.
                unsafe { sink.take(lanes.words::<V, W>(row)) };
                row += WORDS;
            }
            // SAFETY: as above; with minima, there is one row of scales.
            unsafe { sink.scale(lanes.f32(row), MINIMA.then(|| lanes.f32(row + WORDS))) };
            row += WORDS;
        }
    }
}

impl CodeWalk for Q8_0 {
    type Expanded = Expanded<32, false>;

    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(
        lanes: Lanes,
        group: usize,
        sink: &mut impl CodeSink<V, W>,
    ) {
        let group = group * Q8_0_GROUP;
        // SAFETY: a row of scales, eight rows of words.
        unsafe {
            for i in 0..8 {
                take_bytes(lanes.words::<V, W>(group + HALVES + i * WORDS), sink);
            }
            sink.scale(lanes.f16(group), None);
        }
    }
}

impl CodeWalk for Q4_0 {
    type Expanded = Expanded<32, false>;

    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(
        lanes: Lanes,
        group: usize,
        sink: &mut impl CodeSink<V, W>,
    ) {
        let group = group * Q4_0_GROUP;
        // SAFETY: a row of scales, four rows of words.
        unsafe {
            take_nibbles(lanes, group + HALVES, Some(&LESS_8), sink);
            sink.scale(lanes.f16(group), None);
        }
    }
}

impl CodeWalk for Q4_1 {
    type Expanded = Expanded<32, true>;

    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(
        lanes: Lanes,
        group: usize,
        sink: &mut impl CodeSink<V, W>,
    ) {
        let group = group * Q4_1_GROUP;
        // SAFETY: a row of scales, one of minima, four of words.
        unsafe {
            take_nibbles(lanes, group + 2 * HALVES, None, sink);
            sink.scale(lanes.f16(group), Some(lanes.f16(group + HALVES)));
        }
    }
}

impl CodeWalk for Q4K {
    type Expanded = Expanded<32, true>;

    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(
        lanes: Lanes,
        group: usize,
        sink: &mut impl CodeSink<V, W>,
    ) {
        let block = group / 8 * Q4K_GROUP;
        let bytes = block + 2 * HALVES + group % 8 * Q4K_SUB;
        // SAFETY: scales and minima of 256 k, then of each 32 k two rows of bytes and four of words.
        unsafe {
            take_nibbles(lanes, bytes + 2 * BLOCK_LANES, None, sink);
            let scales = products(lanes.f16(block), lanes.u8(bytes));
            let minima = products(lanes.f16(block + HALVES), lanes.u8(bytes + BLOCK_LANES));
            sink.scale(scales, Some(times(minima, -1.0)));
        }
    }
}

impl CodeWalk for Q6K {
    type Expanded = Expanded<16, false>;

    #[inline(always)]
    unsafe fn walk<V: Codes, const W: usize>(
        lanes: Lanes,
        group: usize,
        sink: &mut impl CodeSink<V, W>,
    ) {
        let block = group / 8 * Q6K_GROUP;
        let bytes = block + HALVES + group % 8 * Q6K_SUB;
        for sub in 0..2 {
            // SAFETY: scales of 256 k, then of each 32 k two rows of bytes and twice three of words.
            unsafe {
                take_six_bits(lanes, bytes + 2 * BLOCK_LANES + sub * 3 * WORDS, sink);
                let bytes = lanes.i8(bytes + sub * BLOCK_LANES);
                // The codes are taken four times as large.
                sink.scale(times(products(lanes.f16(block), bytes), 0.25), None);
            }
        }
    }
}

/// Four k of signed bytes.
#[inline(always)]
unsafe fn take_bytes<V: Codes, const W: usize>(
    bytes: [V::Words; W],
    sink: &mut impl PairSink<V, W>,
) {
    // SAFETY: the instruction set is there, and k ascends.
    unsafe {
        sink.take(mapped(bytes, |words| V::even_bytes(words)));
        sink.take(mapped(bytes, |words| V::odd_bytes(words)));
    }
}

/// Thirty-two k of nibbles in four rows of words, or of their values in a table.
#[inline(always)]
pub(super) unsafe fn take_nibbles<V: Codes, const W: usize>(
    lanes: Lanes,
    row: usize,
    table: Option<&[i8; 16]>,
    sink: &mut impl PairSink<V, W>,
) {
    // SAFETY: by the contract of `read`; the instruction set is there, and k ascends.
    unsafe {
        let values = |words| {
            let nibbles = V::and(words, V::splat_word(0x0f0f_0f0f));
            table.map_or(nibbles, |table| V::look_up(table, nibbles))
        };
        for i in 0..4 {
            let words = lanes.packed_words::<V, W>(row + i * WORDS);
            take_bytes(mapped(words, values), sink);
            take_bytes(
                mapped(words, |words| values(V::shift_right::<4>(words))),
                sink,
            );
        }
    }
}

/// Sixteen k of six bits at the upper end of bytes: the low four are in two rows of nibbles, the rest in one of pairs.
#[inline(always)]
unsafe fn take_six_bits<V: Codes, const W: usize>(
    lanes: Lanes,
    row: usize,
    sink: &mut impl PairSink<V, W>,
) {
    // SAFETY: by the contract of `read`; the instruction set is there, and k ascends.
    unsafe {
        let pairs = lanes.packed_words::<V, W>(row + 2 * WORDS);
        let pairs = [
            mapped(pairs, |pairs| V::shift_left::<6>(pairs)),
            mapped(pairs, |pairs| V::shift_left::<4>(pairs)),
            mapped(pairs, |pairs| V::shift_left::<2>(pairs)),
            pairs,
        ];
        for i in 0..2 {
            let nibbles = lanes.packed_words::<V, W>(row + i * WORDS);
            let low = mapped(nibbles, |nibbles| V::shift_left::<2>(nibbles));
            let high = mapped(nibbles, |nibbles| V::shift_right::<2>(nibbles));
            take_bytes(six_bits::<V, W>(low, pairs[2 * i]), sink);
            take_bytes(six_bits::<V, W>(high, pairs[2 * i + 1]), sink);
        }
    }
}

/// Bytes of `nibbles` from bit 2 on, and of `pairs` from bit 6 on.
#[inline(always)]
unsafe fn six_bits<V: Codes, const W: usize>(
    mut nibbles: [V::Words; W],
    pairs: [V::Words; W],
) -> [V::Words; W] {
    for i in 0..W {
        // SAFETY: the instruction set is there.
        nibbles[i] = unsafe {
            let low = V::and(nibbles[i], V::splat_word(0x3c3c_3c3c));
            V::or(low, V::and(pairs[i], V::splat_word(0xc0c0_c0c0)))
        };
    }
    nibbles
}

#[inline(always)]
fn mapped<T: Copy, const W: usize>(mut vectors: [T; W], f: impl Fn(T) -> T) -> [T; W] {
    for i in 0..W {
        vectors[i] = f(vectors[i]);
    }
    vectors
}

#[inline(always)]
pub(super) unsafe fn times<V: Codes, const W: usize>(vectors: [V; W], factor: f32) -> [V; W] {
    // SAFETY: the instruction set is there.
    mapped(vectors, |v| unsafe { v.mul(V::splat(factor)) })
}

#[inline(always)]
pub(super) unsafe fn products<V: Codes, const W: usize>(mut a: [V; W], b: [V; W]) -> [V; W] {
    for i in 0..W {
        // SAFETY: the instruction set is there.
        a[i] = unsafe { a[i].mul(b[i]) };
    }
    a
}
