//! The sample op beside the CPU backend's.

use super::{Device, assert_close};
use crate::cases::sampling::{SampleCase, Sampled, Sampling};
use crate::cases::{reference, values};
use pd_compute::sampling::SamplingRow;
use pd_compute::{Backend, DType, LogitBias, NO_MASK, NO_TOKEN, TokenCount, mask_words};

type Filter = fn(&mut SamplingRow);

fn drawing(temperature: f32, position: u32) -> SamplingRow {
    SamplingRow {
        temperature,
        seed_lo: 7,
        position,
        ..SamplingRow::greedy()
    }
}

fn assert_sampled_alike<D: Device>(device: &D, case: &SampleCase) {
    assert_sampled_alike_of(device, case, &case.logits());
}

fn assert_sampled_alike_of<D: Device>(device: &D, case: &SampleCase, logits: &[f32]) {
    let (expected, actual) = (
        case.run_on(&reference(), logits),
        case.run_on(&device.start(DType::BF16, false), logits),
    );
    assert_alike(&actual, &expected, case);
}

fn assert_alike(actual: &Sampled, expected: &Sampled, what: &dyn std::fmt::Debug) {
    assert_eq!(actual.tokens, expected.tokens, "{what:?}");
    assert_eq!(actual.top_tokens, expected.top_tokens, "{what:?}");
    assert_close(&actual.logprobs, &expected.logprobs, 2e-6, what);
    assert_close(&actual.top_logprobs, &expected.top_logprobs, 2e-6, what);
    assert_close(&actual.asked_logprobs, &expected.asked_logprobs, 2e-6, what);
}

pub(super) fn greedy_rows_take_the_first_of_the_likeliest<D: Device>(device: &D) {
    let mut case = SampleCase::new(vec![SamplingRow::greedy(); 6], 1200);
    case.rows[1].given = 700;
    case.rows[2].top_n = 5;
    case.rows[3].top_n = 20;
    case.top_n_max = 20;
    assert_sampled_alike(device, &case);
    let tiny = SampleCase {
        top_n_max: 8,
        ..SampleCase::new(
            vec![SamplingRow {
                top_n: 8,
                ..SamplingRow::greedy()
            }],
            5,
        )
    };
    assert_sampled_alike(device, &tiny);
}

pub(super) fn draws_fall_where_the_cpus_do<D: Device>(device: &D) {
    let filters: [Filter; 7] = [
        |_| {},
        |row| row.top_k = 1,
        |row| row.top_k = 40,
        |row| row.top_p = 0.8,
        |row| row.min_p = 0.05,
        |row| (row.top_k, row.top_p) = (100, 0.5),
        |row| (row.top_k, row.top_p, row.min_p) = (300, 0.95, 0.01),
    ];
    for (vocab, spread) in [(100, 1.0), (1000, 6.0), (3000, 20.0)] {
        for temperature in [0.3, 1.0, 2.5] {
            let mut rows = Vec::new();
            for filter in &filters {
                for position in 0..6 {
                    let mut row = drawing(temperature, position);
                    filter(&mut row);
                    rows.push(row);
                }
            }
            assert_sampled_alike(
                device,
                &SampleCase {
                    spread,
                    ..SampleCase::new(rows, vocab)
                },
            );
        }
    }
}

pub(super) fn penalties_and_bias_come_before_the_draw<D: Device>(device: &D) {
    let mut rows = vec![drawing(1.0, 3), drawing(0.0, 4), drawing(0.7, 5)];
    for row in &mut rows {
        row.repetition_penalty = 1.3;
        row.presence_penalty = 0.5;
        row.frequency_penalty = 0.25;
        row.top_n = 4;
    }
    (rows[0].counts_begin, rows[0].counts_end) = (0, 3);
    (rows[1].counts_begin, rows[1].counts_end) = (3, 5);
    (rows[1].bias_begin, rows[1].bias_end) = (0, 4);
    (rows[2].bias_begin, rows[2].bias_end) = (2, 4);
    let count = |token, output_count| TokenCount {
        token,
        output_count,
    };
    let bias = |token, bias| LogitBias { token, bias };
    let case = SampleCase {
        counts: vec![
            count(1, 0),
            count(5, 2),
            count(99, 1),
            count(17, 4),
            count(5000, 1),
        ],
        bias: vec![
            bias(17, 3.0),
            bias(40, f32::NEG_INFINITY),
            bias(17, 0.3),
            bias(9000, 1.0),
        ],
        top_n_max: 4,
        ..SampleCase::new(rows, 300)
    };
    assert_sampled_alike(device, &case);
}

pub(super) fn rows_without_a_finite_logit_yield_no_token<D: Device>(device: &D) {
    let mut case = SampleCase::new(
        vec![drawing(1.0, 1), SamplingRow::greedy(), drawing(1.0, 2)],
        40,
    );
    case.top_n_max = 2;
    case.rows[2].top_n = 2;
    let mut logits = case.logits();
    logits[..40].fill(f32::NEG_INFINITY);
    logits[40..80].fill(f32::NAN);
    logits[85] = f32::NAN;
    logits[90] = f32::NEG_INFINITY;
    assert_sampled_alike_of(device, &case, &logits);
}

/// What rows ask for that draw from a large vocabulary.
const FILTERS: [Filter; 12] = [
    |_| {},
    |row| row.min_p = 0.02,
    |row| row.top_k = 50,
    // More than any list holds.
    |row| row.top_k = 3000,
    |row| row.top_k = 20_000,
    |row| row.top_p = 0.0001,
    |row| row.top_p = 0.95,
    |row| row.top_p = 0.9999,
    |row| (row.top_k, row.top_p) = (50, 0.95),
    |row| (row.top_p, row.min_p) = (0.9, 0.001),
    |row| (row.top_k, row.top_p, row.min_p) = (3000, 0.5, 0.3),
    // Next to greedy.
    |row| (row.temperature, row.top_p) = (1e-40, 0.9),
];

fn drawing_with_filters(temperatures: &[f32]) -> Vec<SamplingRow> {
    let mut rows = Vec::new();
    for (position, temperature) in (0..).zip(temperatures) {
        for filter in FILTERS {
            let mut row = drawing(*temperature, position);
            filter(&mut row);
            rows.push(row);
        }
    }
    rows
}

pub(super) fn draws_over_many_splits_fall_where_the_cpus_do<D: Device>(device: &D) {
    let rows = drawing_with_filters(&[0.7, 1.5]);
    // Steep, so that few tokens matter, and flat, so that no list holds all that do.
    for spread in [20.0, 1.0] {
        let case = SampleCase {
            spread,
            ..SampleCase::new(rows.clone(), 40_000)
        };
        assert_sampled_alike(device, &case);
        let alone = SampleCase {
            rows: rows[..1].into(),
            ..case.clone()
        };
        let subject = device.start(DType::BF16, false);
        let bits = |sampled: Sampled| sampled.logprobs[0].to_bits();
        assert_eq!(bits(alone.run(&subject)), bits(case.run(&subject)));
    }
    // As models have them: hardly two alike.
    for vocab in [151_936, 262_208] {
        let case = SampleCase::new(drawing_with_filters(&[0.7]), vocab);
        let logits = values(3, case.rows.len() * vocab);
        let logits: Vec<f32> = logits.into_iter().map(|v| 12.0 * v).collect();
        assert_sampled_alike_of(device, &case, &logits);
    }
}

pub(super) fn equal_logits_are_drawn_by_id<D: Device>(device: &D) {
    let case = SampleCase::new(drawing_with_filters(&[1.0, 5.0]), 20_000);
    let flat = vec![1.5; case.rows.len() * case.vocab];
    let of_two: Vec<f32> = (0..flat.len())
        .map(|i| if i % 3 == 0 { 2.0 } else { 1.0 })
        .collect();
    for logits in [flat, of_two] {
        assert_sampled_alike_of(device, &case, &logits);
    }
}

pub(super) fn splits_without_numbers_are_passed_over<D: Device>(device: &D) {
    let mut rows = drawing_with_filters(&[1.0, 1.0, 1.0, 1.0]);
    for row in &mut rows {
        row.top_n = 5;
    }
    let case = SampleCase {
        top_n_max: 5,
        ..SampleCase::new(rows, 30_000)
    };
    let mut logits = case.logits();
    for (r, row) in logits.chunks_exact_mut(case.vocab).enumerate() {
        for (id, logit) in row.iter_mut().enumerate() {
            let number = *logit;
            *logit = match (r / FILTERS.len(), id / 512 % 4) {
                (0, 1) => f32::NAN,
                (0, 2) | (1, 0..3) => f32::NEG_INFINITY,
                // Ids in a row.
                (2, _) if id < 9000 => f32::NAN,
                (2, _) if id > 17_000 => f32::NEG_INFINITY,
                (3, _) if id != 77 && id != 20_001 && id != 29_999 => f32::NEG_INFINITY,
                _ if id % 7 == 3 => f32::NAN,
                _ => number,
            };
        }
    }
    logits[5 * case.vocab + 12_345] = f32::INFINITY;
    assert_sampled_alike_of(device, &case, &logits);
}

pub(super) fn penalties_and_bias_reach_every_split<D: Device>(device: &D) {
    let mut rows = vec![
        drawing(0.0, 1),
        drawing(1.0, 2),
        SamplingRow {
            top_p: 0.9,
            ..drawing(0.7, 3)
        },
    ];
    let vocab = 20_000;
    let (mut counts, mut bias) = (Vec::new(), Vec::new());
    for (row, step) in rows.iter_mut().zip([61, 487, 1021]) {
        row.repetition_penalty = 1.5;
        row.presence_penalty = 0.5;
        row.frequency_penalty = 0.25;
        row.top_n = 9;
        (row.counts_begin, row.bias_begin) = (to_u32(counts.len()), to_u32(bias.len()));
        for id in (0..vocab).step_by(step) {
            counts.push(TokenCount {
                token: id,
                output_count: id % 3,
            });
        }
        for id in (5..vocab)
            .step_by(2 * step)
            .chain((5..vocab).step_by(3 * step))
        {
            #[allow(clippy::cast_precision_loss, reason = "small")]
            let value = (id % 41) as f32 / 8.0;
            bias.push(LogitBias {
                token: id,
                bias: value,
            });
        }
        (row.counts_end, row.bias_end) = (to_u32(counts.len()), to_u32(bias.len()));
    }
    let case = SampleCase {
        counts,
        bias,
        top_n_max: 9,
        ..SampleCase::new(rows, vocab as usize)
    };
    assert_sampled_alike(device, &case);
}

fn to_u32(len: usize) -> u32 {
    u32::try_from(len).expect("cases are small")
}

/// Allows the tokens for which `is_allowed` holds.
fn mask(vocab: usize, is_allowed: impl Fn(usize) -> bool) -> Vec<u32> {
    let mut words = vec![0; mask_words(vocab)];
    for token in (0..vocab).filter(|token| is_allowed(*token)) {
        words[token / 32] |= 1 << (token % 32);
    }
    words
}

pub(super) fn masked_rows_draw_what_is_allowed<D: Device>(device: &D) {
    for vocab in [100, 20_001] {
        let mut rows = drawing_with_filters(&[0.7, 1.5]);
        for (place, row) in (0..).zip(&mut rows) {
            row.top_n = 4;
            // Some rows have none.
            row.mask = if place % 6 == 5 { NO_MASK } else { place % 6 };
            (row.bias_begin, row.bias_end) = (0, 2);
        }
        let masks = [
            mask(vocab, |token| token == vocab - 1),
            mask(vocab, |token| token % 3 == 1),
            mask(vocab, |token| token < 40 || token > vocab - 9),
            mask(vocab, |_| true),
            mask(vocab, |_| false),
        ];
        let bias = |token, bias| LogitBias { token, bias };
        let case = SampleCase {
            masks: masks.concat(),
            bias: vec![bias(31, 9.0), bias(32, 8.0)],
            top_n_max: 4,
            ..SampleCase::new(rows, vocab)
        };
        assert_sampled_alike(device, &case);
    }
}

pub(super) fn the_likeliest_are_found_in_all_splits<D: Device>(device: &D) {
    let mut rows = vec![SamplingRow::greedy(), drawing(1.0, 1), drawing(1.0, 2)];
    rows[0].top_n = 20;
    // More than are listed, and fewer beside a token that is given.
    rows[1].top_n = 900;
    rows[2].top_n = 3;
    rows[2].given = 8191;
    let case = SampleCase {
        top_n_max: 900,
        spread: 20.0,
        ..SampleCase::new(rows, 9000)
    };
    assert_sampled_alike(device, &case);
}

pub(super) fn asked_tokens_have_the_logprobs_of_drawn_ones<D: Device>(device: &D) {
    for vocab in [300, 20_001] {
        let mut rows = drawing_with_filters(&[0.0, 0.7]);
        for row in rows.iter_mut().step_by(2) {
            (row.bias_begin, row.bias_end) = (0, 1);
            (row.counts_begin, row.counts_end, row.presence_penalty) = (0, 1, 0.5);
        }
        (rows[1].given, rows[3].mask) = (17, 0);
        let mut case = SampleCase {
            masks: mask(vocab, |token| token % 3 == 1),
            bias: vec![LogitBias {
                token: 5,
                bias: 2.0,
            }],
            counts: vec![TokenCount {
                token: 6,
                output_count: 2,
            }],
            ..SampleCase::new(rows, vocab)
        };
        let mut logits = case.logits();
        logits[..vocab].fill(f32::NAN);
        let drawn = case.run_on(&reference(), &logits).tokens;
        let last = to_u32(vocab) - 1;
        // An id beyond the vocabulary, one that is asked twice, and the end of a list.
        let asked = |drawn| [5, 6, drawn, 5, last, last + 1, NO_TOKEN];
        case.asked = drawn.into_iter().flat_map(asked).collect();
        assert_sampled_alike_of(device, &case, &logits);
        let sampled = case.run_on(&device.start(DType::BF16, false), &logits);
        assert!(sampled.asked_logprobs[..7].iter().all(|it| it.is_nan()));
        let rows = sampled.asked_logprobs.chunks_exact(7);
        for (asked, own) in rows.zip(&sampled.logprobs).skip(1) {
            assert_eq!(asked[2].to_bits(), own.to_bits());
            assert!(asked[3].to_bits() == asked[0].to_bits() && asked[5].is_nan());
        }
    }
}

pub(super) fn sampling_reads_its_parameters_at_every_replay<D: Device>(device: &D) {
    let case = SampleCase {
        top_n_max: 4,
        ..SampleCase::new(vec![SamplingRow::greedy(); 2], 20_000)
    };
    let logits = case.logits();
    let (subject, reference) = (device.start(DType::BF16, false), reference());
    let (actual, expected) = (
        Sampling::new(&subject, &case),
        Sampling::new(&reference, &case),
    );
    for (position, filter) in (0..).zip(FILTERS) {
        let mut row = drawing(1.0, position);
        filter(&mut row);
        row.top_n = position % 5;
        let rows = [row, SamplingRow::greedy()];
        expected.fill(&rows, &logits);
        expected.enqueue();
        actual.fill(&rows, &logits);
        subject.backend.replay(|| actual.enqueue());
        assert_alike(&actual.read(), &expected.read(), &row);
    }
}
