//! Choices and weights beside the formulas in f64.

use super::choice::Chooser;
use crate::cpu::backend::tests::{floats, isas, mk_backend, read_floats, read_words, words, zeros};
use crate::ops::{Backend, ExpertGroups, GroupScore, MoeRoute, Routing, Scores};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

#[derive(Debug)]
struct Case {
    logits: Vec<f32>,
    bias: Option<Vec<f32>>,
    num_experts: usize,
    routing: Routing,
    rows: usize,
}

/// Groups of experts, with logits of a few values, so that many are equal, or of any.
fn any_case() -> impl Strategy<Value = Case> {
    let sizes = (1..5_usize, 1..9_usize, 1..20_usize, any::<u64>());
    let scores = prop::sample::select(vec![
        Scores::Softmax,
        Scores::Sigmoid,
        Scores::SoftmaxOfChosen,
    ]);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (sizes, scores, flags).prop_map(|((groups, group_len, rows, seed), scores, flags)| {
        let (has_ties, has_groups, normalise) = flags;
        let mut rng = StdRng::seed_from_u64(seed);
        let num_experts = groups * group_len;
        let chosen = rng.random_range(1..=groups);
        let choice = if has_groups {
            chosen * group_len
        } else {
            num_experts
        };
        // Sums of two in f32 and in f64 do not tie alike.
        let is_sum = !has_ties && group_len > 1;
        let routing = Routing {
            top_k: rng.random_range(1..=choice),
            scores,
            groups: has_groups.then_some(ExpertGroups {
                count: groups,
                chosen,
                score: if is_sum {
                    GroupScore::SumOfTwoBest
                } else {
                    GroupScore::Best
                },
            }),
            normalise,
            scale: rng.random_range(0.5..3.0),
        };
        let mut value = || {
            if has_ties {
                rng.random_range(0..4_u8).into()
            } else {
                rng.random_range(-4.0..4.0_f32)
            }
        };
        Case {
            logits: (0..rows * num_experts).map(|_| value()).collect(),
            bias: (!has_ties && normalise).then(|| (0..num_experts).map(|_| value()).collect()),
            num_experts,
            routing,
            rows,
        }
    })
}

/// The indices of the largest, by sorting.
fn best(values: &[f64], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a]));
    order.truncate(count);
    order
}

fn softmax(values: &[f64]) -> Vec<f64> {
    let exps: Vec<f64> = values.iter().map(|v| v.exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|e| e / sum).collect()
}

/// The chosen and their weights of one row.
fn expected(case: &Case, logits: &[f32]) -> (Vec<usize>, Vec<f64>) {
    let logits: Vec<f64> = logits.iter().map(|v| f64::from(*v)).collect();
    let routing = &case.routing;
    let scores = match routing.scores {
        Scores::Softmax => softmax(&logits),
        Scores::Sigmoid => logits.iter().map(|v| 1.0 / (1.0 + (-v).exp())).collect(),
        Scores::SoftmaxOfChosen => logits,
    };
    let mut values = scores.clone();
    for (value, bias) in values.iter_mut().zip(case.bias.iter().flatten()) {
        *value += f64::from(*bias);
    }
    if let Some(groups) = routing.groups {
        let group_len = case.num_experts / groups.count;
        let counted = match groups.score {
            GroupScore::Best => 1,
            GroupScore::SumOfTwoBest => 2,
        };
        let score = |group: &[f64]| best(group, counted).iter().map(|i| group[*i]).sum();
        let scores: Vec<f64> = values.chunks_exact(group_len).map(score).collect();
        let kept = best(&scores, groups.chosen);
        for (expert, value) in values.iter_mut().enumerate() {
            if !kept.contains(&(expert / group_len)) {
                *value = f64::NEG_INFINITY;
            }
        }
    }
    let ids = best(&values, routing.top_k);
    let mut weights: Vec<f64> = ids.iter().map(|id| scores[*id]).collect();
    if routing.scores == Scores::SoftmaxOfChosen {
        weights = softmax(&weights);
    }
    let sum: f64 = weights.iter().sum();
    let divisor = if routing.normalise { sum } else { 1.0 };
    let weights = weights
        .iter()
        .map(|w| w / divisor * f64::from(routing.scale));
    (ids, weights.collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn experts_are_chosen_and_weighed_by_the_formulas(case in any_case()) {
        let choices = case.rows * case.routing.top_k;
        let mut results = Vec::new();
        for (isa, threads) in isas().zip([1, 2, 3]) {
            let backend = mk_backend(threads, isa);
            let bias = case.bias.as_ref().map(|bias| floats(&backend, bias));
            let (chosen, weights) = (words(&backend, &vec![7; choices]), zeros(&backend, choices));
            backend.moe_route(MoeRoute {
                logits: &floats(&backend, &case.logits),
                num_experts: case.num_experts,
                choice_bias: bias.as_ref(),
                routing: case.routing,
                chosen: &chosen,
                weights: &weights,
                rows: case.rows,
            });
            results.push((read_words(&backend, &chosen), read_floats(&backend, &weights)));
        }
        let (chosen, weights) = &results[0];
        for (row, logits) in case.logits.chunks_exact(case.num_experts).enumerate() {
            let (ids, expected) = expected(&case, logits);
            let span = row * case.routing.top_k..(row + 1) * case.routing.top_k;
            let found: Vec<usize> = chosen[span.clone()].iter().map(|id| *id as usize).collect();
            prop_assert_eq!(found, ids);
            for (weight, expected) in weights[span].iter().zip(expected) {
                let off = (f64::from(*weight) - expected).abs();
                prop_assert!(off <= 2e-6 * expected.abs(), "{} beside {}", weight, expected);
            }
        }
        for other in &results[1..] {
            prop_assert_eq!(other, &results[0], "instruction sets differ");
        }
    }
}

#[test]
fn what_is_no_number_is_chosen_last() {
    let routing = Routing {
        top_k: 3,
        scores: Scores::SoftmaxOfChosen,
        groups: None,
        normalise: false,
        scale: 1.0,
    };
    let mut ids = [9; 3];
    let scores = [f32::NAN, -1.0, f32::NAN, 2.0, f32::NEG_INFINITY];
    Chooser::default().choose(&routing, &scores, None, &mut ids);
    assert_eq!(ids, [3, 1, 0]);
    Chooser::default().choose(&routing, &[f32::NAN; 4], None, &mut ids);
    assert_eq!(ids, [0, 1, 2], "still different experts");
}

#[test]
#[should_panic(expected = "moe_route: 5 of 4 experts")]
fn more_experts_than_the_best_groups_have_are_refused() {
    let backend = mk_backend(1, crate::cpu::isa::Isa::detect());
    let buffer = zeros(&backend, 8);
    backend.moe_route(MoeRoute {
        logits: &buffer,
        num_experts: 8,
        choice_bias: None,
        routing: Routing {
            top_k: 5,
            scores: Scores::Sigmoid,
            groups: Some(ExpertGroups {
                count: 4,
                chosen: 2,
                score: GroupScore::SumOfTwoBest,
            }),
            normalise: true,
            scale: 1.0,
        },
        chosen: &words(&backend, &[0; 5]),
        weights: &zeros(&backend, 5),
        rows: 1,
    });
}
