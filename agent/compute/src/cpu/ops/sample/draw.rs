//! Picking a token: the largest logit, or inversion of the cumulative distribution.
//!
//! Weights are exp((logit − largest) / temperature), so the likeliest has weight 1. Filters apply
//! jointly, as in SGLang: top-k by rank, top-p by the mass of better ranks in the whole
//! distribution, min-p by weight. Without top-k and top-p no ranking is needed, and the walk goes
//! by id; with them it goes by rank.

use super::reduce::Weigh;
use crate::cpu::isa::Isa;
use crate::sampling::{NO_TOKEN, SamplingRow, noise};

/// Memory of a thread.
#[derive(Default)]
pub(super) struct DrawScratch {
    weights: Vec<f32>,
    ranked: Vec<Ranked>,
}

struct Ranked {
    weight: f32,
    id: u32,
}

/// Ids summed together on the way to the drawn one.
const RUN: usize = 1024;
/// Ranks sorted at first, and by how much the number grows while their mass is not enough.
const RANKS_FIRST: usize = 256;
const RANKS_GROWTH: usize = 8;

/// The row's token. `largest` is finite and the largest of the logits.
pub(super) fn draw(
    isa: Isa,
    logits: &[f32],
    largest: f32,
    row: &SamplingRow,
    scratch: &mut DrawScratch,
) -> u32 {
    if row.temperature <= 0.0 || row.top_k == 1 {
        return (0u32..)
            .zip(logits)
            .find(|(_, l)| **l == largest)
            .map_or(NO_TOKEN, |(id, _)| id);
    }
    let DrawScratch { weights, ranked } = scratch;
    weights.resize(logits.len(), 0.0);
    // SAFETY: the kernel has no needs of its own.
    unsafe {
        let temperature = row.temperature;
        isa.dispatch(Weigh {
            values: logits,
            largest,
            temperature,
            weights,
        });
    }
    let point = noise(row.seed(), row.choice, row.position, row.draw);
    let ranks_max = if row.top_k == 0 {
        logits.len()
    } else {
        row.top_k as usize
    };
    if ranks_max >= logits.len() && row.top_p >= 1.0 {
        by_id(weights, row.min_p, point)
    } else {
        let total = run_sums(weights, 0.0).sum::<f64>();
        let mass_max = if row.top_p >= 1.0 {
            f64::INFINITY
        } else {
            total * f64::from(row.top_p)
        };
        let kept = rank(weights, row.min_p, ranks_max, mass_max, ranked);
        by_rank(kept, point)
    }
}

/// Sums of runs of weights, of those that are at least `weight_min`.
fn run_sums(weights: &[f32], weight_min: f32) -> impl Iterator<Item = f64> {
    weights.chunks(RUN).map(move |run| {
        run.iter()
            .filter(|w| **w >= weight_min)
            .map(|w| f64::from(*w))
            .sum()
    })
}

/// The first id at which the cumulative weight exceeds `point` of the total.
fn by_id(weights: &[f32], weight_min: f32, point: f64) -> u32 {
    let mut left = run_sums(weights, weight_min).sum::<f64>() * point;
    let mut start = 0;
    for sum in run_sums(weights, weight_min) {
        if left < sum {
            break;
        }
        // The last run takes what rounding left over.
        if start + RUN >= weights.len() {
            break;
        }
        left -= sum;
        start += RUN;
    }
    let end = weights.len().min(start + RUN);
    let mut chosen = NO_TOKEN;
    for (id, weight) in (0u32..).zip(weights).take(end).skip(start) {
        if *weight > 0.0 && *weight >= weight_min {
            chosen = id;
            left -= f64::from(*weight);
            if left < 0.0 {
                break;
            }
        }
    }
    chosen
}

/// The ranks that pass all filters, likeliest first, equal ones by id.
fn rank<'a>(
    weights: &[f32],
    weight_min: f32,
    ranks_max: usize,
    mass_max: f64,
    ranked: &'a mut Vec<Ranked>,
) -> &'a [Ranked] {
    ranked.clear();
    let eligible = (0u32..)
        .zip(weights)
        .filter(|(_, w)| **w > 0.0 && **w >= weight_min);
    ranked.extend(eligible.map(|(id, weight)| Ranked {
        weight: *weight,
        id,
    }));
    let ranks_max = ranks_max.min(ranked.len());
    let order = |a: &Ranked, b: &Ranked| b.weight.total_cmp(&a.weight).then(a.id.cmp(&b.id));
    let mut sorted = RANKS_FIRST.min(ranks_max);
    loop {
        if sorted < ranked.len() {
            ranked.select_nth_unstable_by(sorted, order);
        }
        ranked[..sorted].sort_unstable_by(order);
        let mut mass = 0.0;
        let kept = ranked[..sorted].iter().take_while(|rank| {
            let before = mass;
            mass += f64::from(rank.weight);
            before <= mass_max
        });
        let kept = kept.count();
        if kept < sorted || sorted == ranks_max {
            return &ranked[..kept];
        }
        sorted = ranks_max.min(sorted * RANKS_GROWTH);
    }
}

fn by_rank(kept: &[Ranked], point: f64) -> u32 {
    let mut left = kept.iter().map(|rank| f64::from(rank.weight)).sum::<f64>() * point;
    let mut chosen = NO_TOKEN;
    for rank in kept {
        chosen = rank.id;
        left -= f64::from(rank.weight);
        if left < 0.0 {
            break;
        }
    }
    chosen
}
