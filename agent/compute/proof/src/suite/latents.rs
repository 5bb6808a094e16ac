//! Latent attention beside the CPU backend's, where a backend has it.

use super::forms::has;
use super::{DTYPES, Device, assert_close};
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
