//! The choice of experts, by sorting all of them.

use crate::ops::moe_route::LEAST_WEIGHT_SUM;
use crate::ops::{ExpertGroups, GroupScore, MoeRoute, Scores};
use crate::tch::handle::TchBackend;
use crate::tch::memory::{int, ints};
use tch::{Kind, Tensor};

pub(in crate::tch) fn moe_route(op: MoeRoute<'_, TchBackend>) -> Result<(), String> {
    let MoeRoute {
        logits,
        num_experts,
        choice_bias,
        routing,
        chosen,
        weights,
        rows,
    } = op;
    let logits = logits.view("moe_route logits", [rows, num_experts]);
    let scores = match routing.scores {
        Scores::Softmax => logits.softmax(-1, Kind::Float),
        Scores::Sigmoid => logits.sigmoid(),
        Scores::SoftmaxOfChosen => logits.shallow_clone(),
    };
    let mut values = match choice_bias {
        Some(bias) => &scores + bias.view("moe_route choice bias", [num_experts]),
        None => scores.shallow_clone(),
    };
    if let Some(groups) = &routing.groups {
        values = of_best_groups(&values, groups);
    }
    let ids = best(&values, routing.top_k);
    let mut found = scores.gather(-1, &ids, false);
    if routing.scores == Scores::SoftmaxOfChosen {
        found = found.softmax(-1, Kind::Float);
    }
    if routing.normalise {
        let sums = found.sum_dim_intlist([-1i64].as_slice(), true, Kind::Float);
        found /= sums + f64::from(LEAST_WEIGHT_SUM);
    }
    chosen.store("moe_route chosen", &ids);
    weights.store("moe_route weights", &(found * f64::from(routing.scale)));
    Ok(())
}

/// The indices of the largest values of each row; of equal ones the lower comes first.
fn best(values: &Tensor, count: usize) -> Tensor {
    let (_, order) = values.sort_stable(true, -1, true);
    order.narrow(-1, 0, int(count))
}

/// The values, −∞ outside the best groups.
fn of_best_groups(values: &Tensor, groups: &ExpertGroups) -> Tensor {
    let (rows, experts) = values.size2().expect("a row for each token");
    let grouped = values.view([rows, int(groups.count), experts / int(groups.count)]);
    let counted = match groups.score {
        GroupScore::Best => 1,
        GroupScore::SumOfTwoBest => 2,
    };
    let (two, _) = grouped.topk(counted, -1, true, true);
    let scores = two.sum_dim_intlist([-1i64].as_slice(), false, Kind::Float);
    let kept = Tensor::zeros(ints([groups.count]), (Kind::Bool, values.device()));
    let kept = kept.expand([rows, int(groups.count)], false).contiguous();
    let kept = kept.scatter_value(-1, &best(&scores, groups.chosen), 1);
    let left_out = kept.logical_not().unsqueeze(-1).expand_as(&grouped);
    grouped
        .masked_fill(&left_out, f64::NEG_INFINITY)
        .view([rows, experts])
}
