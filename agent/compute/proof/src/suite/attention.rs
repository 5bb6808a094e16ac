//! Attention: beside the CPU backend's, and its bits.

use super::{DTYPES, Device, assert_close};
use crate::cases::attention::{AttnCase, AttnForm};
use crate::cases::reference;
use pd_compute::DType;

pub(super) fn attn_case(
    dtype: DType,
    head_dim: usize,
    group: usize,
    seqs: &[(usize, usize)],
) -> AttnCase {
    AttnCase {
        seqs: seqs.to_vec(),
        page_size: 16,
        num_kv_heads: 2,
        group,
        head_dim,
        dtype,
        kv_dtype: dtype,
        form: AttnForm::default(),
    }
}

pub(super) fn attention_of_one_query_each_is_the_cpus<D: Device>(device: &D) {
    let seqs = [(1, 1), (63, 1), (64, 1), (65, 1), (300, 1)];
    for deterministic in [false, true] {
        for dtype in DTYPES {
            let subject = device.start(dtype, deterministic);
            for (head_dim, group) in [
                (16, 1),
                (16, 3),
                (64, 2),
                (64, 4),
                (64, 7),
                (80, 8),
                (128, 1),
                (128, 2),
                (128, 9),
                (256, 2),
            ] {
                let case = attn_case(dtype, head_dim, group, &seqs);
                let expected = case.run(&reference());
                assert_close(
                    &case.run(&subject),
                    &expected,
                    2.0 * subject.rounding(),
                    &case,
                );
            }
        }
    }
}

pub(super) fn attention_of_many_queries_is_the_cpus<D: Device>(device: &D) {
    let seqs = [(70, 70), (1, 1), (200, 65), (129, 2), (64, 64), (333, 150)];
    for dtype in DTYPES {
        let subject = device.start(dtype, false);
        for (head_dim, group) in [(16, 2), (64, 1), (64, 3), (128, 2), (256, 2)] {
            for (page_size, is_sharp) in [(1, false), (24, true), (64, false)] {
                let form = AttnForm {
                    is_sharp,
                    ..AttnForm::default()
                };
                let case = AttnCase {
                    page_size,
                    form,
                    ..attn_case(dtype, head_dim, group, &seqs)
                };
                let expected = case.run(&reference());
                // Weights are rounded to the dtype before they multiply the values.
                assert_close(
                    &case.run(&subject),
                    &expected,
                    4.0 * subject.rounding() * case.tolerance(),
                    &case,
                );
            }
        }
    }
}

pub(super) fn a_querys_bits_depend_on_its_own_keys_only<D: Device>(device: &D) {
    for dtype in DTYPES {
        let subject = device.start(dtype, true);
        for head_dim in [64, 80, 128, 256] {
            let alone = attn_case(dtype, head_dim, 2, &[(140, 140)]).run(&subject);
            let width = alone.len() / 140;
            let beside = attn_case(dtype, head_dim, 2, &[(140, 9), (77, 77)]);
            let beside = AttnCase {
                page_size: 64,
                ..beside
            }
            .run(&subject);
            let bits = |out: &[f32]| out.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(
                bits(&beside[..9 * width]),
                bits(&alone[131 * width..]),
                "{dtype:?} {head_dim}"
            );

            let one = attn_case(dtype, head_dim, 2, &[(140, 1)]).run(&subject);
            assert_eq!(
                bits(&one),
                bits(&alone[139 * width..]),
                "{dtype:?} {head_dim}"
            );
            let several =
                attn_case(dtype, head_dim, 2, &[(140, 1), (300, 1), (1, 1)]).run(&subject);
            assert_eq!(bits(&several[..width]), bits(&one), "{dtype:?} {head_dim}");
        }
    }
}
