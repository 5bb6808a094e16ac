//! Facts about sampling.

#![allow(clippy::cast_possible_truncation, reason = "test values are small")]

use crate::cpu::Isa;
use crate::cpu::backend::tests::{
    floats, isas, mk_backend, noise_floats, read_floats, read_words, words, zeros,
};
use crate::ops::{Backend, Sample};
use crate::sampling::{
    LogitBias, NO_TOKEN, SampleOut, SamplingRow, SamplingView, TokenCount, mask_words, noise,
};
use proptest::prelude::*;

#[derive(Debug, PartialEq)]
struct Sampled {
    tokens: Vec<u32>,
    logprobs: Vec<f32>,
    top_tokens: Vec<u32>,
    top_logprobs: Vec<f32>,
}

fn run(
    isa: Isa,
    logits: &[f32],
    rows: &[SamplingRow],
    counts: &[TokenCount],
    bias: &[LogitBias],
) -> Sampled {
    run_masked(isa, logits, rows, (counts, bias, &[]))
}

fn run_masked(
    isa: Isa,
    logits: &[f32],
    rows: &[SamplingRow],
    (counts, bias, masks): (&[TokenCount], &[LogitBias], &[u32]),
) -> Sampled {
    let backend = mk_backend(2, isa);
    let top_n_max = rows.iter().map(|row| row.top_n as usize).max().unwrap();
    let out = SampleOut {
        tokens: words(&backend, &vec![0; rows.len()]),
        logprobs: zeros(&backend, rows.len()),
        top_n_max,
        top_tokens: words(&backend, &vec![0; rows.len() * top_n_max]),
        top_logprobs: zeros(&backend, rows.len() * top_n_max),
        asked_max: 0,
        asked_logprobs: zeros(&backend, 0),
    };
    let params = SamplingView {
        rows: words(&backend, bytemuck::cast_slice(rows)),
        token_counts: words(&backend, bytemuck::cast_slice(counts)),
        logit_bias: words(&backend, bytemuck::cast_slice(bias)),
        masks: words(&backend, masks),
        asked_tokens: words(&backend, &[]),
    };
    backend.sample(Sample {
        logits: &floats(&backend, logits),
        vocab: logits.len() / rows.len(),
        rows: rows.len(),
        params: &params,
        out: &out,
    });
    Sampled {
        tokens: read_words(&backend, &out.tokens),
        logprobs: read_floats(&backend, &out.logprobs),
        top_tokens: read_words(&backend, &out.top_tokens),
        top_logprobs: read_floats(&backend, &out.top_logprobs),
    }
}

fn one(logits: &[f32], row: SamplingRow) -> u32 {
    run(Isa::detect(), logits, &[row], &[], &[]).tokens[0]
}

fn warm() -> SamplingRow {
    SamplingRow {
        temperature: 1.0,
        ..SamplingRow::greedy()
    }
}

/// How often each of the tokens is drawn over many positions.
fn frequencies(logits: &[f32], row: SamplingRow, draws: u32) -> Vec<f64> {
    let rows: Vec<_> = (0..draws)
        .map(|position| SamplingRow { position, ..row })
        .collect();
    let logits_of_all = logits.repeat(rows.len());
    let mut counts = vec![0.0; logits.len()];
    for token in run(Isa::detect(), &logits_of_all, &rows, &[], &[]).tokens {
        counts[token as usize] += 1.0 / f64::from(draws);
    }
    counts
}

#[test]
fn greedy_takes_the_largest_and_of_equal_ones_the_lowest_id() {
    for isa in isas() {
        let mut logits = noise_floats(1, 1000);
        (logits[700], logits[300], logits[990]) = (5.0, 5.0, 5.0);
        let row = SamplingRow {
            top_n: 2,
            ..SamplingRow::greedy()
        };
        let sampled = run(isa, &logits, &[row], &[], &[]);
        assert_eq!(sampled.tokens, [300]);
        assert_eq!(sampled.top_tokens, [300, 700]);
    }
}

#[test]
fn logprobs_are_of_the_logits_without_temperature() {
    let logits = noise_floats(2, 500);
    let total: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
    let row = SamplingRow {
        temperature: 0.3,
        top_k: 5,
        top_n: 3,
        ..warm()
    };
    let sampled = run(Isa::detect(), &logits, &[row], &[], &[]);
    let expected = |token: u32| (f64::from(logits[token as usize]).exp() / total).ln();
    let pairs = sampled.tokens.iter().zip(&sampled.logprobs);
    for (token, logprob) in pairs.chain(sampled.top_tokens.iter().zip(&sampled.top_logprobs)) {
        assert!((f64::from(*logprob) - expected(*token)).abs() < 1e-6);
    }
}

#[test]
fn a_given_token_is_reported_and_not_drawn() {
    let row = SamplingRow { given: 2, ..warm() };
    let sampled = run(Isa::detect(), &[0.0, 0.0, 0.0, 0.0], &[row], &[], &[]);
    assert_eq!((sampled.tokens[0], sampled.logprobs[0]), (2, -(4f32.ln())));
}

#[test]
fn tokens_are_drawn_as_often_as_they_are_likely() {
    let weights = [0.5, 0.3, 0.15, 0.05];
    let logits: Vec<f32> = weights.iter().map(|w: &f32| w.ln()).collect();
    for (drawn, weight) in frequencies(&logits, warm(), 20_000)
        .into_iter()
        .zip(weights)
    {
        assert!(
            (drawn - f64::from(weight)).abs() < 0.012,
            "{drawn} beside {weight}"
        );
    }
}

#[test]
fn filters_keep_the_likeliest_only() {
    let weights = [0.05, 0.5, 0.15, 0.3];
    let logits: Vec<f32> = weights.iter().map(|w: &f32| w.ln()).collect();
    let kept = |row| {
        let drawn = frequencies(&logits, row, 4000);
        (0..4).filter(|i| drawn[*i] > 0.0).collect::<Vec<_>>()
    };
    assert_eq!(kept(SamplingRow { top_k: 2, ..warm() }), [1, 3]);
    assert_eq!(
        kept(SamplingRow {
            top_p: 0.6,
            ..warm()
        }),
        [1, 3]
    );
    assert_eq!(
        kept(SamplingRow {
            top_p: 0.85,
            ..warm()
        }),
        [1, 2, 3]
    );
    assert_eq!(
        kept(SamplingRow {
            top_p: 0.0,
            ..warm()
        }),
        [1]
    );
    assert_eq!(
        kept(SamplingRow {
            min_p: 0.2,
            ..warm()
        }),
        [1, 2, 3]
    );
    assert_eq!(
        kept(SamplingRow {
            min_p: 0.2,
            top_k: 3,
            top_p: 0.4,
            ..warm()
        }),
        [1]
    );
}

#[test]
fn penalties_and_bias_change_the_logits_they_name() {
    let logits = [2.0, 2.0, -1.0, 0.5, 0.0];
    let counts = [
        TokenCount {
            token: 0,
            output_count: 0,
        },
        TokenCount {
            token: 1,
            output_count: 3,
        },
        TokenCount {
            token: 2,
            output_count: 1,
        },
        TokenCount {
            token: 77,
            output_count: 1,
        },
    ];
    let bias = [
        LogitBias {
            token: 3,
            bias: f32::NEG_INFINITY,
        },
        LogitBias {
            token: 4,
            bias: 10.0,
        },
        LogitBias {
            token: 78,
            bias: 10.0,
        },
    ];
    let row = SamplingRow {
        repetition_penalty: 2.0,
        presence_penalty: 0.5,
        frequency_penalty: 0.25,
        counts_end: 4,
        bias_end: 3,
        top_n: 5,
        ..SamplingRow::greedy()
    };
    let sampled = run(Isa::detect(), &logits, &[row], &counts, &bias);
    assert_eq!(sampled.top_tokens, [4, 0, 1, 2, 3]);
    let gaps: Vec<f32> = sampled
        .top_logprobs
        .windows(2)
        .map(|w| w[0] - w[1])
        .collect();
    let adjusted = [
        10.0,
        1.0,
        2.0 / 2.0 - 0.5 - 0.75,
        -2.0 - 0.5 - 0.25,
        f32::NEG_INFINITY,
    ];
    for (gap, pair) in gaps.iter().zip(adjusted.windows(2)) {
        assert!(*gap == pair[0] - pair[1] || (gap - (pair[0] - pair[1])).abs() < 1e-5);
    }
}

#[test]
fn a_row_without_a_finite_logit_yields_no_token() {
    for logits in [
        [f32::NAN; 3],
        [f32::NEG_INFINITY; 3],
        [1.0, f32::INFINITY, 0.0],
    ] {
        let sampled = run(Isa::detect(), &logits, &[warm()], &[], &[]);
        assert_eq!(sampled.tokens, [NO_TOKEN]);
        assert!(sampled.logprobs[0].is_nan());
    }
    assert_eq!(one(&[f32::NAN, 1.0, f32::NAN], warm()), 1);
}

#[test]
fn noise_is_uniform_and_pinned() {
    let mean = (0..10_000).map(|i| noise(7, 0, i, 0)).sum::<f64>() / 1e4;
    assert!((mean - 0.5).abs() < 0.01);
    let pinned = [
        noise(0, 0, 0, 0),
        noise(1, 0, 0, 0),
        noise(0, 1, 0, 0),
        noise(0, 0, 0, 1),
    ];
    assert_eq!(
        pinned.map(|x| (x * 1e6) as u32),
        [285_750, 294_093, 566_544, 846_786]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn a_row_does_not_depend_on_its_batch_mates_or_the_instruction_set(
        seed: u64,
        temperature in prop::sample::select(vec![0.0f32, 0.2, 1.0, 3.0]),
        top_k in prop::sample::select(vec![0u32, 1, 40, 100_000]),
        top_p in prop::sample::select(vec![1.0f32, 0.9, 0.5]),
        min_p in prop::sample::select(vec![0.0f32, 0.05]),
    ) {
        let vocab = 3000;
        let mut row = SamplingRow { temperature, top_k, top_p, min_p, top_n: 4, ..warm() };
        row.set_seed(seed);
        let rows = [warm(), row, SamplingRow::greedy()];
        let logits: Vec<f32> = noise_floats(seed, 3 * vocab).iter().map(|x| x * 8.0).collect();
        let alone = run(Isa::Scalar, &logits[vocab..2 * vocab], &[row], &[], &[]);
        for isa in isas() {
            let together = run(isa, &logits, &rows, &[], &[]);
            prop_assert_eq!(together.tokens[1], alone.tokens[0]);
            prop_assert_eq!(together.logprobs[1], alone.logprobs[0]);
            prop_assert_eq!(&together.top_tokens[4..8], &alone.top_tokens[..]);
        }
    }
}

/// Allows these tokens of `vocab`.
fn mask(vocab: usize, allowed: &[u32]) -> Vec<u32> {
    let mut words = vec![0; mask_words(vocab)];
    for token in allowed {
        words[*token as usize / 32] |= 1 << (token % 32);
    }
    words
}

#[test]
fn a_masked_row_draws_what_is_allowed_by_its_probability_among_that() {
    let vocab = 1000;
    let logits = noise_floats(9, vocab);
    let allowed = [3, 31, 32, 500, 999];
    let total: f64 = allowed
        .iter()
        .map(|id| f64::from(logits[*id as usize]).exp())
        .sum();
    let rows: Vec<_> = (0..64)
        .map(|position| SamplingRow {
            position,
            mask: 1,
            top_n: 6,
            ..warm()
        })
        .collect();
    let masks = [mask(vocab, &[7]), mask(vocab, &allowed)].concat();
    for isa in isas() {
        let sampled = run_masked(isa, &logits.repeat(64), &rows, (&[], &[], &masks));
        for (token, logprob) in sampled.tokens.iter().zip(&sampled.logprobs) {
            assert!(allowed.contains(token), "{token}");
            let expected = (f64::from(logits[*token as usize]).exp() / total).ln();
            assert!((f64::from(*logprob) - expected).abs() < 1e-5);
        }
        for (top, logprobs) in sampled
            .top_tokens
            .chunks(6)
            .zip(sampled.top_logprobs.chunks(6))
        {
            assert!(top[..5].iter().all(|token| allowed.contains(token)));
            assert_eq!(logprobs[5], f32::NEG_INFINITY);
        }
    }
}

#[test]
fn a_mask_bans_after_the_bias_and_only_its_own_row() {
    let bias = [LogitBias {
        token: 5,
        bias: 100.0,
    }];
    let mut rows = [SamplingRow::greedy(); 3];
    for row in &mut rows {
        (row.bias_begin, row.bias_end) = (0, 1);
    }
    (rows[1].mask, rows[2].mask) = (0, 1);
    let masks = [mask(40, &[39]), mask(40, &[])].concat();
    let logits = noise_floats(3, 40).repeat(3);
    let sampled = run_masked(Isa::detect(), &logits, &rows, (&[], &bias, &masks));
    assert_eq!(sampled.tokens, [5, 39, NO_TOKEN]);
}
