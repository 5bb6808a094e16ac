//! Latent attention beside the CPU backend's, where a backend has it.

use super::forms::has;
use super::{DTYPES, Device, assert_close};
use crate::cases::latents::LatentsCase;
use crate::cases::reference;
use pd_compute::OpFeature;

pub(super) fn latents_are_kept_and_attended<D: Device>(device: &D) {
    for dtype in DTYPES {
        let subject = device.start(dtype, false);
        if !has(&subject, &[OpFeature::LatentAttention]) {
            continue;
        }
        for (rows, heads, latent_dim, v_dim) in [(1, 2, 16, 8), (70, 4, 32, 24), (9, 3, 40, 20)] {
            let case = LatentsCase {
                rows,
                heads,
                nope_dim: 12,
                rope_dim: 8,
                latent_dim,
                v_dim,
                dtype,
            };
            let (actual, expected) = (case.run(&subject), case.run(&reference()));
            let bound = 4.0 * subject.rounding();
            assert_close(&actual.pool, &expected.pool, bound, &case);
            // Three more products, each of rounded numbers.
            assert_close(&actual.out, &expected.out, 4.0 * bound, &case);
        }
    }
}
