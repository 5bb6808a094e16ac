//! Latent attention beside the CPU backend's, where a backend has it.

use super::forms::has;
use super::{DTYPES, Device, assert_close};
use crate::cases::latent_attention::LatentAttnCase;
use crate::cases::latents::LatentsCase;
use crate::cases::reference;
use pd_compute::{DType, OpFeature};

pub(super) fn case(
    dtype: DType,
    rows: usize,
    heads: usize,
    (latent_dim, v_dim): (usize, usize),
) -> LatentsCase {
    LatentsCase {
        rows,
        heads,
        nope_dim: 16,
        rope_dim: 8,
        latent_dim,
        v_dim,
        dtype,
        kv_dtype: dtype,
    }
}

pub(super) fn latents_are_kept_and_attended<D: Device>(device: &D) {
    for dtype in DTYPES {
        let subject = device.start(dtype, false);
        if !has(&subject, &[OpFeature::LatentAttention]) {
            continue;
        }
        // The last one has more than one pack of elements for each lane of a warp, as DeepSeek's.
        for (rows, heads, latent_dim, v_dim) in [
            (1, 2, 16, 8),
            (70, 4, 32, 24),
            (9, 3, 40, 20),
            (6, 1, 512, 16),
        ] {
            let case = case(dtype, rows, heads, (latent_dim, v_dim));
            let (actual, expected) = (case.run(&subject), case.run(&reference()));
            let bound = 4.0 * subject.rounding();
            assert_close(&actual.pool, &expected.pool, bound, &case);
            // Three more products, each of rounded numbers.
            assert_close(&actual.out, &expected.out, 4.0 * bound, &case);
        }
    }
}

/// With a few rows and with many, which other kernels multiply.
pub(super) fn a_rows_bits_depend_on_the_latents_before_it_only<D: Device>(device: &D) {
    for dtype in DTYPES {
        let subject = device.start(dtype, true);
        if !has(&subject, &[OpFeature::LatentAttention]) {
            continue;
        }
        let bits = |rows| {
            let out = case(dtype, rows, 3, (72, 24)).run(&subject).out;
            out.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        let all = bits(70);
        for rows in [1, 8, 9, 33] {
            let is_same = bits(rows) == all[..rows * 3 * 24];
            assert!(is_same, "{dtype:?} {rows} rows differ");
        }
    }
}

fn attn_case(
    dtype: DType,
    heads: usize,
    (latent_dim, rope_dim): (usize, usize),
    seqs: &[(usize, usize)],
) -> LatentAttnCase {
    LatentAttnCase {
        seqs: seqs.to_vec(),
        page_size: 16,
        heads,
        latent_dim,
        rope_dim,
        dtype,
    }
}

/// DeepSeek's, and others that have less or more.
const SHAPES: [(usize, usize); 5] = [(512, 64), (16, 8), (72, 8), (200, 64), (576, 64)];

/// Sequences end within blocks of keys, at their ends, and beyond several splits.
const DECODE: [(usize, usize); 6] = [(1, 1), (32, 1), (33, 1), (128, 1), (300, 1), (131, 1)];

/// With many rows, and with so few that there are splits: the last one begins behind some of a tile's queries.
const PROMPTS: [&[(usize, usize)]; 3] = [
    &[(70, 70), (1, 1), (150, 33), (129, 2), (64, 1)],
    &[(258, 5), (40, 3)],
    &[(97, 20)],
];

pub(super) fn queries_attend_to_latents_as_the_cpus_do<D: Device>(device: &D) {
    for dtype in DTYPES {
        let subject = device.start(dtype, false);
        if !has(&subject, &[OpFeature::LatentAttention]) {
            continue;
        }
        let check = |case: LatentAttnCase| {
            // Weights are rounded to bfloat16 before they multiply the values; in f32, products have many terms.
            let roundings = if dtype == DType::BF16 { 4.0 } else { 8.0 };
            let (actual, bound) = (case.run(&subject), roundings * subject.rounding());
            assert_close(&actual, &case.run(&reference()), bound, &case);
        };
        for (shape, page_size) in SHAPES.into_iter().zip([16, 1, 64, 24, 16]) {
            let heads = [5, 1, 16];
            for heads in &heads[..if dtype == DType::BF16 { 3 } else { 1 }] {
                for seqs in PROMPTS.into_iter().chain([&DECODE[..]]) {
                    check(LatentAttnCase {
                        page_size,
                        ..attn_case(dtype, *heads, shape, seqs)
                    });
                }
            }
        }
        // A query's heads fill more than one tile, or end within one; a sequence goes through a ring many times.
        for (heads, shape, page_size) in
            [(20, (72, 8), 1), (128, (24, 16), 16), (40, (512, 64), 64)]
        {
            for seqs in [&[(75, 9), (3, 3)], &[(200, 1), (139, 1)]] {
                check(LatentAttnCase {
                    page_size,
                    ..attn_case(dtype, heads, shape, seqs)
                });
            }
        }
        check(attn_case(dtype, 16, (512, 64), &[(1100, 1)]));
        check(attn_case(dtype, 3, (64, 16), &[(170, 1); 40]));
        // So many that none has splits, one of them long.
        let mut many = [(1, 1); 140];
        many[77] = (500, 1);
        check(attn_case(dtype, 6, (512, 64), &many));
    }
}

pub(super) fn a_querys_bits_depend_on_its_own_latents_only<D: Device>(device: &D) {
    for dtype in DTYPES {
        let subject = device.start(dtype, true);
        if !has(&subject, &[OpFeature::LatentAttention]) {
            continue;
        }
        for (heads, shape) in [(5, (512, 64)), (16, (64, 16)), (72, (24, 8))] {
            let run = |page_size, seqs: &[(usize, usize)]| {
                let case = LatentAttnCase {
                    page_size,
                    ..attn_case(dtype, heads, shape, seqs)
                };
                let out = case.run(&subject);
                out.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
            };
            let alone = run(16, &[(140, 40)]);
            let width = alone.len() / 40;
            let last = &alone[39 * width..];
            let what = (dtype, heads);
            assert!(
                run(64, &[(140, 9), (77, 7)])[..9 * width] == alone[31 * width..],
                "{what:?}"
            );
            assert!(run(1, &[(140, 1)]) == *last, "{what:?}");
            let several = run(16, &[(140, 1), (300, 1), (1, 1)]);
            assert!(several[..width] == *last, "{what:?}");
        }
    }
}
