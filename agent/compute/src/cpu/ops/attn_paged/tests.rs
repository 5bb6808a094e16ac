//! Facts about paged attention, above all that a query's bits depend on its own keys alone.

mod case;

use crate::buffer::DeviceBuffer as _;
use crate::cpu::Isa;
use crate::cpu::backend::tests::{isas, mk_backend, words, zeros};
use crate::dtype::{ComputeDtype, DType};
use crate::kv::KvScales;
use crate::ops::{AttnPaged, AttnValues, Backend, BatchView};
use case::{Case, Form, PLAIN, Way};
use proptest::prelude::*;

fn bits(outs: &[Vec<f32>]) -> Vec<Vec<u32>> {
    outs.iter()
        .map(|out| out.iter().map(|x| x.to_bits()).collect())
        .collect()
}

fn mk_case(kv_lens: &[usize], head_dim: usize, dtype: DType) -> Case {
    Case {
        kv_lens: kv_lens.to_vec(),
        num_kv_heads: 2,
        group: 3,
        head_dim,
        dtype,
        form: Form::default(),
    }
}

#[test]
fn attention_is_the_textbook_formula() {
    for head_dim in [8, 16, 64, 80] {
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::F8E4M3] {
            let case = mk_case(&[70, 1], head_dim, dtype);
            for isa in isas() {
                let outs = case.compute(&Way { isa, ..PLAIN });
                for (seq, position, head) in [(0, 0, 0), (0, 63, 2), (0, 69, 5), (1, 0, 3)] {
                    let at = position * case.q_len() + head * head_dim;
                    let expected = case.expected(seq, position, head);
                    for (y, expected) in outs[seq][at..at + head_dim].iter().zip(expected) {
                        let off = (f64::from(*y) - expected).abs();
                        assert!(off < 2e-6, "{} {dtype:?} {y} {expected}", isa.name());
                    }
                }
            }
        }
    }
}

#[test]
fn a_decode_step_equals_the_last_row_of_a_prefill() {
    let case = mk_case(&[130, 65], 32, DType::F32);
    let prefill = bits(&case.compute(&PLAIN));
    for isa in isas() {
        assert_eq!(
            bits(&case.compute(&Way {
                isa,
                chunk: 1,
                ..PLAIN
            })),
            prefill
        );
    }
}

#[test]
fn a_long_sequence_divided_among_threads_gives_the_same_bits() {
    let case = Case {
        num_kv_heads: 1,
        ..mk_case(&[1000], 16, DType::F32)
    };
    let isa = Isa::detect();
    let one = bits(&case.compute(&Way { isa, ..PLAIN }));
    assert_eq!(
        bits(&case.compute(&Way {
            isa,
            threads: 3,
            chunk: 20,
            ..PLAIN
        })),
        one
    );
}

#[test]
fn a_page_beyond_the_pool_faults_the_queue() {
    let case = mk_case(&[5], 16, DType::F32);
    let backend = mk_backend(1, Isa::detect());
    let (kv, _, _) = case.pool(&backend, &PLAIN);
    let batch = BatchView {
        num_tokens: 1,
        num_seqs: 1,
        token_ids: words(&backend, &[0]),
        positions: words(&backend, &[4]),
        q_indptr: words(&backend, &[0, 1]),
        kv_lens: words(&backend, &[5]),
        page_table: words(&backend, &[99]),
        page_table_stride: 1,
        out_slots: words(&backend, &[0]),
    };
    let q = zeros(&backend, case.q_len());
    backend.attn_paged(AttnPaged {
        q: &q,
        q_row_stride: case.q_len(),
        num_q_heads: 6,
        scale: 1.0,
        batch: &batch,
        kv: &kv,
        kv_scales: KvScales::ONE,
        layer: 0,
        window: None,
        sinks: None,
        softcap: None,
        values: AttnValues::Own,
        gate: None,
        out: &zeros(&backend, case.q_len()).slice(0..case.q_len()),
    });
    let fault = backend
        .health()
        .err()
        .or(crate::Ticket::wait(backend.fence()).err())
        .unwrap();
    assert!(
        fault
            .to_string()
            .contains("page 99 is beyond the pool of 2"),
        "{fault}"
    );
}

/// Products of bfloat16, as far as this machine has them: in pairs, and on tiles.
fn in_bf16() -> impl Iterator<Item = Way> {
    isas().filter(|isa| *isa >= Isa::Avx512Bf16).map(|isa| Way {
        isa,
        activations: ComputeDtype::BF16,
        ..PLAIN
    })
}

#[test]
fn a_row_sees_nothing_of_what_lies_outside_its_window() {
    sees_nothing_outside_its_window(&mk_case(&[150], 16, DType::F32));
    sees_nothing_outside_its_window(&mk_case(&[150], 32, DType::BF16));
}

fn sees_nothing_outside_its_window(case: &Case) {
    let form = Form {
        window: Some(10),
        ..Form::default()
    };
    let case = Case {
        form,
        ..case.clone()
    };
    let poisoned = Case {
        form: Form {
            poisoned: Some(70),
            ..form
        },
        ..case.clone()
    };
    let ways = isas().map(|isa| Way { isa, ..PLAIN });
    for way in ways.chain(in_bf16()) {
        let (clean, outs) = (bits(&case.compute(&way)), poisoned.compute(&way));
        for position in 0..150 {
            let row = position * case.q_len()..(position + 1) * case.q_len();
            if (70..80).contains(&position) {
                assert!(outs[0][row].iter().all(|x| x.is_nan()), "row {position}");
            } else {
                assert_eq!(bits(&outs)[0][row.clone()], clean[0][row], "row {position}");
            }
        }
    }
}

/// Values that keys of `head_dim` have.
fn within(form: Form, head_dim: usize) -> Form {
    let of_key = form.of_key.map(|len| len.min(head_dim));
    Form { of_key, ..form }
}

fn forms() -> impl Strategy<Value = Form> {
    let windows = prop_oneof![Just(None), (1usize..150).prop_map(Some)];
    let softcaps = prop::sample::select(vec![None, Some(0.7f32), Some(30.0)]);
    // Latents, in whole vectors and not.
    let of_keys = prop::sample::select(vec![None, Some(5), Some(16), Some(48)]);
    (windows, softcaps, any::<bool>(), any::<bool>(), of_keys).prop_map(
        |(window, softcap, has_sinks, has_gate, of_key)| Form {
            window,
            softcap,
            has_sinks,
            has_gate,
            of_key,
            poisoned: None,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn bits_do_not_depend_on_the_way(
        kv_lens in prop::collection::vec(1usize..200, 1..4),
        head_dim in prop::sample::select(vec![8usize, 16, 32, 64, 80]),
        dtype in prop::sample::select(vec![DType::F32, DType::F16, DType::BF16, DType::F8E4M3]),
        group in 1usize..5,
        isa in prop::sample::select(isas().collect::<Vec<_>>()),
        threads in 1usize..4,
        page_size in prop::sample::select(vec![1usize, 16, 64]),
        page_shift in 0usize..50,
        chunk in prop::sample::select(vec![1usize, 7, 64, usize::MAX]),
        layer in 0usize..2,
        form in forms(),
    ) {
        let form = within(form, head_dim);
        let case = Case { group, form, ..mk_case(&kv_lens, head_dim, dtype) };
        let way = Way { isa, threads, page_size, page_shift, chunk, num_layers: 2, layer, ..PLAIN };
        let strongest = Way { isa: Isa::detect(), ..PLAIN };
        prop_assert_eq!(bits(&case.compute(&way)), bits(&case.compute(&strongest)));
    }

    #[test]
    fn products_of_bfloat16_are_the_textbook_formula_in_any_way(
        kv_lens in prop::collection::vec(1usize..200, 1..4),
        head_dim in prop::sample::select(vec![32usize, 64, 96]),
        group in 1usize..9,
        threads in 1usize..4,
        page_size in prop::sample::select(vec![1usize, 16, 64]),
        page_shift in 0usize..50,
        chunk in prop::sample::select(vec![1usize, 2, 7, 64, usize::MAX]),
        form in forms(),
    ) {
        let form = Form { of_key: form.of_key.map(|_| 16), ..form };
        let case = Case { group, form, ..mk_case(&kv_lens, head_dim, DType::BF16) };
        for plain in in_bf16() {
            let way = Way { threads, page_size, page_shift, chunk, ..plain.clone() };
            let outs = case.compute(&way);
            prop_assert_eq!(bits(&outs), bits(&case.compute(&plain)));
            let position = kv_lens[0] - 1;
            for head in 0..2 * group {
                let expected = case.expected(0, position, head);
                let from = position * case.out_len() + head * case.value_dim();
                for (y, expected) in outs[0][from..].iter().zip(expected) {
                    prop_assert!((f64::from(*y) - expected).abs() < 0.03, "{y} {expected}");
                }
            }
        }
    }

    #[test]
    fn every_form_is_the_textbook_formula(
        kv_len in 1usize..200,
        head_dim in prop::sample::select(vec![8usize, 16, 64, 80]),
        dtype in prop::sample::select(vec![DType::F32, DType::BF16, DType::F8E4M3]),
        group in 1usize..5,
        isa in prop::sample::select(isas().collect::<Vec<_>>()),
        page_size in prop::sample::select(vec![1usize, 16, 64]),
        chunk in prop::sample::select(vec![1usize, 7, 64, usize::MAX]),
        form in forms(),
        at in any::<prop::sample::Index>(),
    ) {
        let form = within(form, head_dim);
        let case = Case { group, form, ..mk_case(&[kv_len], head_dim, dtype) };
        let outs = case.compute(&Way { isa, page_size, chunk, ..PLAIN });
        for position in [0, at.index(kv_len), kv_len - 1] {
            for head in 0..2 * group {
                let expected = case.expected(0, position, head);
                let from = position * case.out_len() + head * case.value_dim();
                for (y, expected) in outs[0][from..].iter().zip(expected) {
                    prop_assert!((f64::from(*y) - expected).abs() < 3e-6, "{y} {expected}");
                }
            }
        }
    }
}
