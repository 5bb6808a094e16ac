//! Pools of E4M3 beside the CPU backend's, where a backend takes them: stored bytes are equal, and attention reads them
//! as closely as it reads others.

use super::attention::attn_case;
use super::latents;
use super::{DTYPES, Device, assert_close};
use crate::cases::attention::{AttnCase, AttnForm, KvShape};
use crate::cases::latents::LatentsCase;
use crate::cases::rows::{self, QkvCase};
use crate::cases::{Subject, pages, reference};
use pd_compute::{Backend, DType, KvNeeds, OpNeeds};

const KV: DType = DType::F8E4M3;

/// Backends on the device that take such pools, in each dtype of activations.
fn takers<D: Device>(device: &D, deterministic: bool) -> Vec<Subject<D::Backend>> {
    let needs = OpNeeds {
        kv: vec![KvNeeds {
            dtype: KV,
            head_dim: 64,
        }],
        ..OpNeeds::default()
    };
    let started = DTYPES.map(|dtype| device.start(dtype, deterministic));
    let takes = |subject: &Subject<D::Backend>| subject.backend.check_ops(&needs).is_ok();
    started.into_iter().filter(takes).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn latents(dtype: DType, rows: usize, latent_dim: usize) -> LatentsCase {
    LatentsCase {
        kv_dtype: KV,
        ..latents::case(dtype, rows, 3, (latent_dim, 24))
    }
}

pub(super) fn keys_and_values_become_the_nearest_codes_and_those_beyond_are_counted<D: Device>(
    device: &D,
) {
    for subject in takers(device, false) {
        let (dtype, expected) = (subject.dtype(), reference());
        for (head_dim, rotary_dim, has_bias, has_norms) in [
            (16, 16, false, false),
            (80, 0, true, false),
            (128, 64, true, true),
        ] {
            let case = QkvCase {
                kv: KvShape {
                    num_pages: 9,
                    page_size: 4,
                    num_kv_heads: 2,
                    head_dim,
                    num_layers: 3,
                },
                num_q_heads: 6,
                rotary_dim,
                following: 0,
                has_bias,
                has_norms,
                dtype,
                kv_dtype: KV,
            };
            let (_, pool) = rows::qkv_prep(&expected, &case);
            let (_, actual) = rows::qkv_prep(&subject, &case);
            assert!(bits(&actual) == bits(&pool), "{case:?}");
            assert_saturated_alike(&subject, &expected);
        }
        let case = latents(dtype, 70, 64);
        let (actual, pool) = (case.run(&subject).pool, case.run(&expected).pool);
        assert!(bits(&actual) == bits(&pool), "{case:?}");
        assert_saturated_alike(&subject, &expected);
    }
}

fn assert_saturated_alike<B: Backend, R: Backend>(actual: &Subject<B>, expected: &Subject<R>) {
    let expected = expected.backend.kv_saturations();
    assert_eq!(actual.backend.kv_saturations(), expected);
}

/// Of one query each, of prompts, in the plain form and in all others at once, and over latents.
pub(super) fn attention_reads_e4m3_as_the_cpus_does<D: Device>(device: &D) {
    let decode: &[(usize, usize)] = &[(1, 1), (65, 1), (300, 1)];
    let prefill: &[(usize, usize)] = &[(70, 70), (1, 1), (130, 20)];
    let all = AttnForm {
        window: Some(70),
        softcap: Some(20.0),
        has_sinks: true,
        has_gate: true,
        is_sharp: false,
    };
    let plain = AttnForm::default();
    let sharp = AttnForm {
        is_sharp: true,
        ..plain
    };
    for subject in takers(device, false) {
        let (dtype, bound) = (subject.dtype(), 4.0 * subject.rounding());
        // Every kernel by its lanes and heads, and those with other than powers of two.
        for (head_dim, group) in [
            (16, 3),
            (64, 1),
            (64, 8),
            (80, 5),
            (128, 1),
            (128, 4),
            (256, 1),
        ] {
            for (seqs, form) in [
                (decode, plain),
                (decode, all),
                (prefill, plain),
                (prefill, all),
                (prefill, sharp),
            ] {
                let case = AttnCase {
                    kv_dtype: KV,
                    page_size: 24,
                    form,
                    ..attn_case(dtype, head_dim, group, seqs)
                };
                let expected = case.run(&reference());
                let bound = bound * case.tolerance();
                assert_close(&case.run(&subject), &expected, bound, &case);
            }
        }
        for (rows, latent_dim) in [(1, 16), (70, 32), (6, 512)] {
            let case = latents(dtype, rows, latent_dim);
            let expected = case.run(&reference());
            // Three more products, each of rounded numbers.
            assert_close(&case.run(&subject).out, &expected.out, 4.0 * bound, &case);
        }
    }
}

pub(super) fn pages_and_bits_of_e4m3_stay_what_they_are<D: Device>(device: &D) {
    for subject in takers(device, true) {
        let dtype = subject.dtype();
        assert_eq!(
            pages::there_and_back(&subject, &super::SMALL_POOL, KV),
            pages::there_and_back(&reference(), &super::SMALL_POOL, KV)
        );
        for head_dim in [64, 80, 256] {
            let run = |page_size, seqs: &[(usize, usize)]| {
                let case = AttnCase {
                    kv_dtype: KV,
                    page_size,
                    ..attn_case(dtype, head_dim, 2, seqs)
                };
                bits(&case.run(&subject))
            };
            let alone = run(16, &[(140, 140)]);
            let width = alone.len() / 140;
            let beside = run(64, &[(140, 9), (77, 77)]);
            assert!(beside[..9 * width] == alone[131 * width..], "{head_dim}");
            assert!(run(1, &[(140, 1)]) == alone[139 * width..], "{head_dim}");
        }
        let of_latents = |rows| bits(&latents(dtype, rows, 72).run(&subject).out);
        assert!(of_latents(9) == of_latents(33)[..9 * 3 * 24]);
    }
}
