//! Forms of ops that a backend may lack, as far as it has them: beside the CPU backend's.

use super::attention::attn_case;
use super::{DTYPES, Device, assert_close};
use crate::cases::attention::{AttnCase, AttnForm};
use crate::cases::linear::{LinearCase, linear};
use crate::cases::{Subject, reference, rows};
use pd_compute::{Backend, DType, Epilogue, OpFeature, OpNeeds};

pub(super) fn has<B: Backend>(subject: &Subject<B>, features: &[OpFeature]) -> bool {
    let needs = OpNeeds {
        features: features.iter().copied().collect(),
        kv: Vec::new(),
    };
    subject.backend.check_ops(&needs).is_ok()
}

/// Each part by itself, and all at once.
fn attn_forms() -> [(AttnForm, &'static [OpFeature]); 7] {
    let window = |window| AttnForm {
        window: Some(window),
        ..AttnForm::default()
    };
    let capped = AttnForm {
        softcap: Some(1.5),
        ..AttnForm::default()
    };
    let sinks = AttnForm {
        has_sinks: true,
        ..AttnForm::default()
    };
    let gated = AttnForm {
        has_gate: true,
        is_sharp: true,
        ..AttnForm::default()
    };
    let all = AttnForm {
        window: Some(70),
        softcap: Some(20.0),
        has_sinks: true,
        has_gate: true,
        is_sharp: false,
    };
    [
        (window(1), &[OpFeature::AttnWindow]),
        (window(100), &[OpFeature::AttnWindow]),
        (sinks, &[OpFeature::AttnSinks]),
        (
            AttnForm {
                has_sinks: true,
                ..window(33)
            },
            &[OpFeature::AttnWindow, OpFeature::AttnSinks],
        ),
        (capped, &[OpFeature::AttnSoftCap]),
        (gated, &[OpFeature::AttnGate]),
        (
            all,
            &[
                OpFeature::AttnWindow,
                OpFeature::AttnSinks,
                OpFeature::AttnSoftCap,
                OpFeature::AttnGate,
            ],
        ),
    ]
}

pub(super) fn attention_has_windows_sinks_caps_and_gates<D: Device>(device: &D) {
    let decode: &[(usize, usize)] = &[(1, 1), (64, 1), (65, 1), (300, 1)];
    let prefill: &[(usize, usize)] = &[(70, 70), (1, 1), (200, 65), (129, 2)];
    let plain = DTYPES.map(|dtype| (dtype, false));
    for (dtype, deterministic) in plain.into_iter().chain([(DType::BF16, true)]) {
        let subject = device.start(dtype, deterministic);
        for (form, features) in attn_forms() {
            if !has(&subject, features) {
                continue;
            }
            // Of gpt-oss, Qwen3 and Gemma 3, among others.
            for (head_dim, group, page_size) in
                [(16, 3, 24), (64, 8, 16), (128, 2, 16), (256, 4, 24)]
            {
                for seqs in [decode, prefill] {
                    let case = AttnCase {
                        page_size,
                        form,
                        ..attn_case(dtype, head_dim, group, seqs)
                    };
                    let expected = case.run(&reference());
                    let bound = 4.0 * subject.rounding() * case.tolerance();
                    assert_close(&case.run(&subject), &expected, bound, &case);
                }
            }
        }
    }
}

pub(super) fn linears_add_biases_and_have_more_epilogues<D: Device>(device: &D) {
    let clamped = Epilogue::ClampedSwiGlu {
        alpha: 1.702,
        limit: 1.0,
    };
    for (dtype, deterministic) in [
        (DType::F32, false),
        (DType::BF16, false),
        (DType::BF16, true),
    ] {
        let subject = device.start(dtype, deterministic);
        for (epilogue, has_bias, features) in [
            (Epilogue::Store, true, &[OpFeature::LinearBias][..]),
            (Epilogue::AddResidual, true, &[OpFeature::LinearBias]),
            (Epilogue::SwiGlu, true, &[OpFeature::LinearBias]),
            (Epilogue::GeluTanhGlu, false, &[OpFeature::GeluTanhGlu]),
            (clamped, false, &[OpFeature::ClampedSwiGlu]),
            (
                clamped,
                true,
                &[OpFeature::ClampedSwiGlu, OpFeature::LinearBias],
            ),
            (Epilogue::SoftCap(2.0), false, &[OpFeature::LogitSoftCap]),
        ] {
            if !has(&subject, features) {
                continue;
            }
            for (n, k) in [(16, 8), (40, 264)] {
                for rows in [1, 17, 257] {
                    let case = LinearCase {
                        rows,
                        n,
                        k,
                        epilogue,
                        dtype,
                        to_f32: false,
                        has_bias,
                    };
                    let expected = linear(&reference(), &case);
                    let bound = 2.0 * subject.rounding();
                    assert_close(&linear(&subject, &case), &expected, bound, &case);
                }
            }
        }
    }
}

pub(super) fn embeddings_are_scaled_and_norms_added<D: Device>(device: &D) {
    for dtype in DTYPES {
        let subject = device.start(dtype, false);
        for hidden in [8, 20, 64, 1000] {
            if has(&subject, &[OpFeature::EmbedScale]) {
                let ids = [2, 0, pd_compute::NO_TOKEN, 6];
                let scaled = Some(25.25);
                let expected = rows::embed(&reference(), 7, hidden, scaled, &ids);
                let actual = rows::embed(&subject, 7, hidden, scaled, &ids);
                let what = (dtype, hidden);
                assert_close(&actual, &expected, 2.0 * subject.rounding(), &what);
            }
            if has(&subject, &[OpFeature::NormAdd]) {
                let expected = rows::added_norm(&reference(), dtype, (3, hidden));
                let actual = rows::added_norm(&subject, dtype, (3, hidden));
                let what = (dtype, hidden);
                assert_close(&actual, &expected, 2.0 * subject.rounding(), &what);
            }
        }
    }
}
