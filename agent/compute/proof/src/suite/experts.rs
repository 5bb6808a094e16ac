//! Mixtures of experts beside the CPU backend's, where a backend has them.

use super::forms::has;
use super::{DTYPES, Device, assert_close};
use crate::cases::experts::{ExpertsCase, experts};
use crate::cases::{Subject, reference};
use pd_compute::{Backend, ExpertGroups, GroupScore, OpFeature, Routing, Scores};

fn routings() -> [Routing; 4] {
    let softmax = Routing {
        top_k: 2,
        scores: Scores::Softmax,
        groups: None,
        normalise: true,
        scale: 1.0,
    };
    let grouped = |scores, score, normalise| Routing {
        top_k: 3,
        scores,
        groups: Some(ExpertGroups {
            count: 4,
            chosen: 2,
            score,
        }),
        normalise,
        scale: 2.5,
    };
    [
        softmax,
        Routing {
            top_k: 4,
            scores: Scores::SoftmaxOfChosen,
            normalise: false,
            ..softmax
        },
        grouped(Scores::Sigmoid, GroupScore::SumOfTwoBest, true),
        grouped(Scores::Softmax, GroupScore::Best, false),
    ]
}

pub(super) fn experts_are_chosen_run_and_added_up<D: Device>(device: &D) {
    for dtype in DTYPES {
        let subject = device.start(dtype, false);
        if !has(&subject, &[OpFeature::Experts]) {
            continue;
        }
        for routing in routings() {
            for (rows, num_experts, hidden, width) in [(1, 8, 16, 24), (40, 12, 40, 16)] {
                for (has_bias, has_shared) in [(false, false), (true, true), (false, true)] {
                    let case = ExpertsCase {
                        rows,
                        num_experts,
                        num_local: num_experts,
                        first_expert: 0,
                        hidden,
                        width,
                        routing,
                        has_bias,
                        has_shared,
                        dtype,
                    };
                    assert_mixed(&subject, &case);
                }
            }
        }
        // An expert has more rows, many, and several tiles of them, whose columns make several, too.
        let [routing, ..] = routings();
        for (rows, hidden, width) in [(100, 40, 72), (300, 40, 72), (700, 328, 136)] {
            let case = ExpertsCase {
                rows,
                num_experts: 8,
                num_local: 8,
                first_expert: 0,
                hidden,
                width,
                routing,
                has_bias: true,
                has_shared: true,
                dtype,
            };
            assert_mixed(&subject, &case);
        }
    }
}

/// Choices by themselves and in tiles, most of which are of experts that other ranks have.
pub(super) fn experts_of_other_ranks_are_left_to_them<D: Device>(device: &D) {
    for dtype in DTYPES {
        let subject = device.start(dtype, false);
        if !has(&subject, &[OpFeature::Experts]) {
            continue;
        }
        let [routing, ..] = routings();
        for (rows, first_expert, num_local) in [(3, 4, 6), (40, 4, 6), (40, 0, 2), (100, 14, 2)] {
            let case = ExpertsCase {
                rows,
                num_experts: 16,
                num_local,
                first_expert,
                hidden: 40,
                width: 24,
                routing,
                has_bias: true,
                has_shared: false,
                dtype,
            };
            assert_mixed(&subject, &case);
        }
    }
}

fn assert_mixed<B: Backend>(subject: &Subject<B>, case: &ExpertsCase) {
    let expected = experts(&reference(), case);
    let actual = experts(subject, case);
    assert_eq!(actual.chosen, expected.chosen, "{case:?}");
    assert_close(&actual.weights, &expected.weights, 2e-6, case);
    assert_close(&actual.x, &expected.x, 4.0 * subject.rounding(), case);
}

/// A choice by itself, and in tiles of each size.
pub(super) fn a_rows_bits_do_not_depend_on_those_that_choose_its_experts<D: Device>(device: &D) {
    for dtype in DTYPES {
        let subject = device.start(dtype, true);
        if !has(&subject, &[OpFeature::Experts]) {
            continue;
        }
        let [routing, ..] = routings();
        let bits = |rows| {
            let case = ExpertsCase {
                rows,
                num_experts: 8,
                num_local: 8,
                first_expert: 0,
                hidden: 264,
                width: 40,
                routing,
                has_bias: true,
                has_shared: true,
                dtype,
            };
            let out = experts(&subject, &case).x;
            out.iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        let all = bits(300);
        for rows in [1, 5, 40, 60, 130] {
            let is_same = bits(rows) == all[..rows * 264];
            assert!(is_same, "{dtype:?} {rows} rows differ");
        }
    }
}
