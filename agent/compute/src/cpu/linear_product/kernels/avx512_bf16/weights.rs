//! A block's weights as rows of pairs of k: as they lie, or made whole in registers.

use crate::cpu::pack::compact::{self, Exception};
use crate::cpu::pack::layout::{COMPACT_HEADER, COMPACT_STEP, HALVES, WORDS};
use std::arch::x86_64::{
    __m512i, _MM_HINT_T1, _mm_load_si128, _mm_prefetch, _mm512_and_si512, _mm512_broadcast_i32x4,
    _mm512_loadu_si512, _mm512_set1_epi8, _mm512_shuffle_epi8, _mm512_srli_epi16,
    _mm512_unpackhi_epi8, _mm512_unpacklo_epi8,
};

/// A row of pairs: of 32 outputs, two k each.
pub(in super::super) type PairRow = [__m512i; 2];

/// A block from which `N` rows of pairs come at a time.
pub(in super::super) trait Weights<const N: usize> {
    /// # Safety
    /// A packed block of this form, of rows of `k` values, that outlives this. AVX-512 BW is there.
    unsafe fn of_block(block: *const u8, k: usize) -> Self;

    /// Rows `[first, first + N)`.
    ///
    /// # Safety
    /// As [`Self::of_block`]; the block has these rows, which are asked for in ascending order from 0.
    unsafe fn next(&mut self, first: usize) -> [PairRow; N];
}

pub(in super::super) struct Whole(*const u8);

/// See [`compact`].
pub(in super::super) struct Compact {
    steps: *const u8,
    high_bytes: __m512i,
    /// Those to come.
    exceptions: *const Exception,
}

/// How far ahead memory is asked for compact weights, which take longer to multiply than a processor looks ahead by
/// itself: forty-eight steps, into the level-2 cache. The first level has few places for misses, held for as long as
/// memory takes.
const AHEAD: usize = 48 * COMPACT_STEP;

impl Weights<1> for Whole {
    #[inline(always)]
    unsafe fn of_block(block: *const u8, _: usize) -> Self {
        Self(block)
    }

    #[inline(always)]
    unsafe fn next(&mut self, first: usize) -> [PairRow; 1] {
        // SAFETY: by the contract, a row of 32 words.
        unsafe {
            let row = self.0.add(first * WORDS);
            [[
                _mm512_loadu_si512(row.cast()),
                _mm512_loadu_si512(row.add(WORDS / 2).cast()),
            ]]
        }
    }
}

impl Weights<2> for Compact {
    #[inline(always)]
    unsafe fn of_block(block: *const u8, k: usize) -> Self {
        // SAFETY: by the contract, a header, steps, and exceptions up to the one that ends them.
        unsafe {
            Self {
                steps: block.add(COMPACT_HEADER),
                high_bytes: _mm512_broadcast_i32x4(_mm_load_si128(block.cast())),
                exceptions: block.add(compact::exceptions_at(k)).cast(),
            }
        }
    }

    #[inline(always)]
    unsafe fn next(&mut self, first: usize) -> [PairRow; 2] {
        // SAFETY: by the contract, a step, and exceptions up to the one that ends them.
        unsafe {
            let step = self.steps.add(first / 2 * COMPACT_STEP);
            let low = [0, HALVES].map(|at| _mm512_loadu_si512(step.add(at).cast()));
            let nibbles = _mm512_loadu_si512(step.add(2 * HALVES).cast());
            for line in 0..3 {
                _mm_prefetch::<_MM_HINT_T1>(step.wrapping_add(AHEAD + line * 64).cast());
            }
            let of_byte = _mm512_set1_epi8(15);
            let rows = [nibbles, _mm512_srli_epi16::<4>(nibbles)];
            let mut rows: [PairRow; 2] = std::array::from_fn(|row| {
                let high =
                    _mm512_shuffle_epi8(self.high_bytes, _mm512_and_si512(rows[row], of_byte));
                [
                    _mm512_unpacklo_epi8(low[row], high),
                    _mm512_unpackhi_epi8(low[row], high),
                ]
            });
            if (*self.exceptions).step as usize == first / 2 {
                // A copy, so that the rows stay in registers where there is none.
                let mut copy = rows;
                self.exceptions = put(self.exceptions, &mut copy);
                rows = copy;
            }
            rows
        }
    }
}

/// Puts a step's exceptions in their places, and returns those of the steps after it.
///
/// # Safety
/// A list that ends with [`Exception::END`].
#[cold]
#[inline(never)]
unsafe fn put(mut exceptions: *const Exception, rows: &mut [PairRow; 2]) -> *const Exception {
    let values: *mut u16 = std::ptr::from_mut(rows).cast();
    // SAFETY: by the contract; places are those of the two rows' 128 values.
    unsafe {
        let step = (*exceptions).step;
        while (*exceptions).step == step {
            *values.add(usize::from((*exceptions).place)) = (*exceptions).value;
            exceptions = exceptions.add(1);
        }
    }
    exceptions
}
