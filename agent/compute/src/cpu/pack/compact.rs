//! Blocks of bfloat16 in three quarters of their bytes, without loss.
//!
//! A trained weight's exponent says little: nearly all of a block lie within sixteen powers of two. So the low byte
//! (the last bit of the exponent, and the mantissa) is kept, and of the high byte (the sign, and the other seven bits
//! of the exponent) a nibble: the sign, and which of the block's eight commonest exponents it has. Weights with another
//! one are kept apart, where a block has few of them. Products that wait for memory take three quarters of the time,
//! and their bits are the same. (DFloat11, arXiv 2504.11651, says the same of exponents, and gives them codes of
//! variable length.)

use super::layout::{BLOCK_LANES, COMPACT_HEADER, COMPACT_STEP};
use bytemuck::{Pod, Zeroable};
use std::arch::x86_64::{_mm_and_si128, _mm_packus_epi16, _mm_set1_epi16, _mm_srli_epi16};

/// A weight whose high byte the block's table lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Exception {
    /// Four k; [`Exception::END`] has a step that no block has.
    pub(crate) step: u32,
    /// Of the step's values: two rows of pairs.
    pub(crate) place: u16,
    pub(crate) value: u16,
}

/// The low byte and the high one.
type Value = [u8; 2];

/// Values in a row of pairs.
const ROW_LEN: usize = 2 * BLOCK_LANES;
/// Exponents, but for their last bits, that a nibble can name.
const EXPONENTS: usize = 8;
/// Of a high byte.
const SIGN: u8 = 0x80;

impl Exception {
    pub(crate) const END: Self = Self {
        step: u32::MAX,
        place: 0,
        value: 0,
    };
}

/// Whether rows of `k` values divide into steps, in each of eight shares, too.
pub(crate) const fn fits(k: usize) -> bool {
    k > 0 && k.is_multiple_of(32)
}

/// How many weights of a block may be exceptions: one of 512, beyond which the saving would be gone soon.
const fn room(k: usize) -> usize {
    k / 16
}

/// Bytes of a block of rows of `k` values.
pub(crate) const fn block_bytes(k: usize) -> usize {
    let exceptions = (room(k) + 1) * size_of::<Exception>();
    exceptions_at(k) + exceptions.next_multiple_of(COMPACT_HEADER)
}

/// Where a block's exceptions begin.
pub(crate) const fn exceptions_at(k: usize) -> usize {
    COMPACT_HEADER + k / 4 * COMPACT_STEP
}

/// Writes a packed block of BF16 as a compact one, to zeroed `out`. False where it has more exceptions than room.
pub(super) fn write_block(whole: &[u8], k: usize, out: &mut [u8]) -> bool {
    let values: &[Value] = whole.as_chunks().0;
    let exponents = commonest(values);
    let table = exponents.into_iter().chain(exponents.map(|e| e | SIGN));
    out.iter_mut()
        .zip(table)
        .for_each(|(out, byte)| *out = byte);
    let (steps, exceptions) = out.split_at_mut(exceptions_at(k));
    let exceptions: &mut [Exception] = bytemuck::cast_slice_mut(exceptions);
    let mut count = 0;
    let rows = values.as_chunks::<ROW_LEN>().0.as_chunks::<2>().0;
    let steps = steps[COMPACT_HEADER..].chunks_exact_mut(COMPACT_STEP);
    for (step, (rows, out)) in (0..).zip(rows.iter().zip(steps)) {
        let (low, nibbles) = out.split_at_mut(2 * ROW_LEN);
        let low = low.as_chunks_mut::<ROW_LEN>().0;
        let mut all_named = true;
        for (row, (values, low)) in rows.iter().zip(low).enumerate() {
            let (names, named) = names(&part(values, low), &exponents);
            all_named &= named;
            for (nibbles, name) in nibbles.iter_mut().zip(names) {
                *nibbles |= name << (4 * row);
            }
        }
        if all_named {
            continue;
        }
        let is_named = |[_, high]: &Value| exponents.contains(&(high & !SIGN));
        for (place, value) in (0..).zip(rows.as_flattened()) {
            if is_named(value) {
                continue;
            }
            if count == room(k) {
                return false;
            }
            let value = u16::from_le_bytes(*value);
            exceptions[count] = Exception { step, place, value };
            count += 1;
        }
    }
    exceptions[count] = Exception::END;
    true
}

/// The commonest exponents without their last bits, which are high bytes without signs.
fn commonest(values: &[Value]) -> [u8; EXPONENTS] {
    // Four counts of each, since one that has just been written would be waited for.
    let mut counts = [[0_u32; 256]; 4];
    for values in values.as_chunks::<4>().0 {
        for ([_, high], counts) in values.iter().zip(&mut counts) {
            counts[usize::from(*high)] += 1;
        }
    }
    let count = |exponent: u8| -> u32 {
        let both = [exponent, exponent | SIGN].map(usize::from);
        both.iter()
            .flat_map(|at| counts.iter().map(|c| c[*at]))
            .sum()
    };
    let mut exponents: Vec<u8> = (0..SIGN).collect();
    exponents.sort_by_cached_key(|exponent| std::cmp::Reverse(count(*exponent)));
    std::array::from_fn(|i| exponents[i])
}

/// Writes the low bytes of a row and returns its high ones: eight of its first half beside eight of its second, as
/// instructions that interleave bytes within sixteen of them take them.
fn part(values: &[Value; ROW_LEN], low: &mut [u8; ROW_LEN]) -> [u8; ROW_LEN] {
    let mut high = [0; ROW_LEN];
    let (first, second) = values.split_at(BLOCK_LANES);
    let eights = first
        .as_chunks::<8>()
        .0
        .iter()
        .zip(second.as_chunks::<8>().0);
    let out = low.as_chunks_mut().0.iter_mut().zip(high.as_chunks_mut().0);
    for ((first, second), (low, high)) in eights.zip(out) {
        let eights = [first, second].map(|eight| bytemuck::cast(*eight));
        // SAFETY: SSE2 is part of x86-64.
        let both = unsafe {
            let low_byte = _mm_set1_epi16(0xff);
            [
                eights.map(|eight| _mm_and_si128(eight, low_byte)),
                eights.map(|eight| _mm_srli_epi16::<8>(eight)),
            ]
            .map(|[first, second]| _mm_packus_epi16(first, second))
        };
        [*low, *high] = both.map(bytemuck::cast::<_, [u8; 16]>);
    }
    high
}

/// The nibbles of high bytes, and whether all have one.
fn names(high: &[u8; ROW_LEN], exponents: &[u8; EXPONENTS]) -> ([u8; ROW_LEN], bool) {
    let mut names = high.map(|byte| (byte & SIGN) >> 4);
    let mut strays = [1; ROW_LEN];
    for (name, exponent) in (0..).zip(exponents) {
        for ((out, stray), byte) in names.iter_mut().zip(&mut strays).zip(high) {
            let is_it = byte & !SIGN == *exponent;
            *out |= if is_it { name } else { 0 };
            *stray &= u8::from(!is_it);
        }
    }
    (names, strays == [0; ROW_LEN])
}

#[cfg(test)]
mod tests;
