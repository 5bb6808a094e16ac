//! Expands the weights of a packed block, lanes `[lane, lane + W · V::LANES)`, in k order. The
//! bytes are those of `pack::layout`; the values are bit-equal to `quant::dequantize`.

use super::sink::Sink;
use crate::cpu::kernels::simd::Simd;
use crate::cpu::pack::BLOCK_LANES;
use crate::cpu::pack::layout::{
    HALVES, Q4_0_GROUP, Q4_1_GROUP, Q4K_GROUP, Q4K_HEADER, Q6K_GROUP, Q6K_HEADER, Q8_0_GROUP, WORDS,
};

/// A packed format.
///
/// # Safety
/// `block` is a packed block of this format for rows of `k` values, `lane + W · V::LANES` is at
/// most [`BLOCK_LANES`], and the processor has the instruction set of `V`.
pub(super) trait Walk {
    unsafe fn walk<V: Simd, const W: usize>(
        block: *const u8,
        lane: usize,
        k: usize,
        sink: &mut impl Sink<V, W>,
    );
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Bf16;
pub(super) struct Q8_0;
pub(super) struct Q4_0;
pub(super) struct Q4_1;
pub(super) struct Q4K;
pub(super) struct Q6K;

/// `W` vectors, by what loads the one at each lane.
#[inline(always)]
fn vectors<V: Simd, T: Copy, const W: usize>(load: impl Fn(usize) -> T) -> [T; W] {
    let mut all = [load(0); W];
    for (i, one) in all.iter_mut().enumerate().skip(1) {
        *one = load(i * V::LANES);
    }
    all
}

/// Eight k of nibbles, lowest first; `value` is a nibble's weight in vector `i`.
///
/// # Safety
/// As [`Walk`]; `words` is a row of words at the lane.
#[inline(always)]
unsafe fn walk_words<V: Simd, const W: usize>(
    words: *const u8,
    sink: &mut impl Sink<V, W>,
    value: impl Fn(usize, V::Words) -> V,
) {
    // SAFETY: `W` vectors of words from the lane on.
    let mut words = vectors::<V, _, W>(|i| unsafe { V::load_words(words.add(i * 4)) });
    for _ in 0..8 {
        // SAFETY: the instruction set is there.
        unsafe {
            let mut weights = [V::splat(0.0); W];
            for (i, (weight, words)) in weights.iter_mut().zip(&mut words).enumerate() {
                *weight = value(i, *words);
                *words = V::shift_right::<4>(*words);
            }
            sink.take(weights);
        }
    }
}

impl Walk for F32 {
    #[inline(always)]
    unsafe fn walk<V: Simd, const W: usize>(
        block: *const u8,
        lane: usize,
        k: usize,
        sink: &mut impl Sink<V, W>,
    ) {
        for i in 0..k {
            // SAFETY: row `i` of `k` rows of 32 f32.
            unsafe {
                let row = block.add((i * BLOCK_LANES + lane) * 4);
                sink.take(vectors::<V, _, W>(|at| V::load(row.add(at * 4).cast())));
            }
        }
    }
}

impl Walk for F16 {
    #[inline(always)]
    unsafe fn walk<V: Simd, const W: usize>(
        block: *const u8,
        lane: usize,
        k: usize,
        sink: &mut impl Sink<V, W>,
    ) {
        for i in 0..k {
            // SAFETY: row `i` of `k` rows of 32 f16.
            unsafe {
                let row = block.add(i * HALVES + lane * 2);
                sink.take(vectors::<V, _, W>(|at| V::load_f16(row.add(at * 2))));
            }
        }
    }
}

impl Walk for Bf16 {
    #[inline(always)]
    unsafe fn walk<V: Simd, const W: usize>(
        block: *const u8,
        lane: usize,
        k: usize,
        sink: &mut impl Sink<V, W>,
    ) {
        for pair in 0..k.div_ceil(2) {
            // SAFETY: row `pair` of ⌈k / 2⌉ rows of 32 words.
            unsafe {
                let row = block.add(pair * WORDS + lane * 4);
                let words = vectors::<V, _, W>(|at| V::load_words(row.add(at * 4)));
                sink.take(words.map(|words| V::bf16_low(words)));
                if pair * 2 + 1 < k {
                    sink.take(words.map(|words| V::bf16_high(words)));
                }
            }
        }
    }
}

impl Walk for Q8_0 {
    #[inline(always)]
    unsafe fn walk<V: Simd, const W: usize>(
        block: *const u8,
        lane: usize,
        k: usize,
        sink: &mut impl Sink<V, W>,
    ) {
        for group in 0..k / 32 {
            // SAFETY: group `group` of k / 32: a row of scales, 32 rows of bytes.
            unsafe {
                let group = block.add(group * Q8_0_GROUP);
                let scales = group.add(lane * 2);
                let scales = vectors::<V, _, W>(|at| V::load_f16(scales.add(at * 2)));
                for i in 0..32 {
                    let row = group.add(HALVES + i * BLOCK_LANES + lane);
                    let mut weights = vectors::<V, _, W>(|at| V::load_i8(row.add(at)));
                    for (weight, scale) in weights.iter_mut().zip(scales) {
                        *weight = scale.mul(*weight);
                    }
                    sink.take(weights);
                }
            }
        }
    }
}

impl Walk for Q4_0 {
    #[inline(always)]
    unsafe fn walk<V: Simd, const W: usize>(
        block: *const u8,
        lane: usize,
        k: usize,
        sink: &mut impl Sink<V, W>,
    ) {
        for group in 0..k / 32 {
            // SAFETY: group `group` of k / 32: a row of scales, four rows of words.
            unsafe {
                let group = block.add(group * Q4_0_GROUP);
                let scales = group.add(lane * 2);
                let scales = vectors::<V, _, W>(|at| V::load_f16(scales.add(at * 2)));
                for i in 0..4 {
                    let words = group.add(HALVES + i * WORDS + lane * 4);
                    walk_words(words, sink, |i, words| {
                        scales[i].mul(V::nibble_less_8(words))
                    });
                }
            }
        }
    }
}

impl Walk for Q4_1 {
    #[inline(always)]
    unsafe fn walk<V: Simd, const W: usize>(
        block: *const u8,
        lane: usize,
        k: usize,
        sink: &mut impl Sink<V, W>,
    ) {
        for group in 0..k / 32 {
            // SAFETY: group `group` of k / 32: scales, minima, four rows of words.
            unsafe {
                let group = block.add(group * Q4_1_GROUP);
                let halves = group.add(lane * 2);
                let scales = vectors::<V, _, W>(|at| V::load_f16(halves.add(at * 2)));
                let minima = vectors::<V, _, W>(|at| V::load_f16(halves.add(HALVES + at * 2)));
                for i in 0..4 {
                    let words = group.add(2 * HALVES + i * WORDS + lane * 4);
                    walk_words(words, sink, |i, words| {
                        scales[i].fma(V::nibble(words), minima[i])
                    });
                }
            }
        }
    }
}

impl Walk for Q4K {
    #[inline(always)]
    unsafe fn walk<V: Simd, const W: usize>(
        block: *const u8,
        lane: usize,
        k: usize,
        sink: &mut impl Sink<V, W>,
    ) {
        for sub in 0..k / 32 {
            // SAFETY: sub-block `sub % 8` of group `sub / 8` of k / 256: scales and minima of the
            // group, then bytes of each sub-block, then four rows of words of each.
            unsafe {
                let group = block.add(sub / 8 * Q4K_GROUP);
                let halves = group.add(lane * 2);
                let bytes = group.add(2 * HALVES + sub % 8 * 2 * BLOCK_LANES + lane);
                let scales = vectors::<V, _, W>(|at| {
                    V::load_f16(halves.add(at * 2)).mul(V::load_u8(bytes.add(at)))
                });
                let minima = vectors::<V, _, W>(|at| {
                    let min = V::load_f16(halves.add(HALVES + at * 2));
                    min.mul(V::load_u8(bytes.add(BLOCK_LANES + at)))
                        .mul(V::splat(-1.0))
                });
                for i in 0..4 {
                    let row = sub % 8 * 4 + i;
                    let words = group.add(Q4K_HEADER + row * WORDS + lane * 4);
                    walk_words(words, sink, |i, words| {
                        scales[i].fma(V::nibble(words), minima[i])
                    });
                }
            }
        }
    }
}

impl Walk for Q6K {
    #[inline(always)]
    unsafe fn walk<V: Simd, const W: usize>(
        block: *const u8,
        lane: usize,
        k: usize,
        sink: &mut impl Sink<V, W>,
    ) {
        for sub in 0..k / 16 {
            // SAFETY: sub-block `sub % 16` of group `sub / 16` of k / 256: scales of the group,
            // then byte scales of each sub-block, then three rows of words of each.
            unsafe {
                let group = block.add(sub / 16 * Q6K_GROUP);
                let halves = group.add(lane * 2);
                let bytes = group.add(HALVES + sub % 16 * BLOCK_LANES + lane);
                let scales = vectors::<V, _, W>(|at| {
                    V::load_f16(halves.add(at * 2)).mul(V::load_i8(bytes.add(at)))
                });
                let words = group.add(Q6K_HEADER + sub % 16 * 3 * WORDS + lane * 4);
                let pairs = words.add(2 * WORDS);
                let mut pairs = vectors::<V, _, W>(|at| V::load_words(pairs.add(at * 4)));
                for i in 0..2 {
                    let low = words.add(i * WORDS);
                    let mut low = vectors::<V, _, W>(|at| V::load_words(low.add(at * 4)));
                    for _ in 0..8 {
                        let mut weights = scales;
                        for i in 0..W {
                            let code = V::six_bits_less_32(low[i], pairs[i]);
                            weights[i] = scales[i].mul(code);
                            low[i] = V::shift_right::<4>(low[i]);
                            pairs[i] = V::shift_right::<2>(pairs[i]);
                        }
                        sink.take(weights);
                    }
                }
            }
        }
    }
}
