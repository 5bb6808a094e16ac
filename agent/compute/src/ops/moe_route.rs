//! Which experts a token goes to, and what each of them counts.

use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;

/// Scores each row's experts, chooses `top_k` of them and weighs them.
///
/// Choices are made by the score plus the bias, weights are the scores alone. Of equal ones the
/// expert with the lower id comes first.
#[derive(Debug)]
pub struct MoeRoute<'a, B: DeviceTypes> {
    /// `F32 [rows][num_experts]`: the router's product.
    pub logits: &'a B::Buffer,
    pub num_experts: usize,
    /// `F32 [num_experts]`, added to the scores where experts are chosen.
    pub choice_bias: Option<&'a B::Buffer>,
    pub routing: Routing,
    /// `U32 [rows][top_k]`: ids of experts, best first.
    pub chosen: &'a B::Buffer,
    /// `F32 [rows][top_k]`.
    pub weights: &'a B::Buffer,
    pub rows: usize,
}

/// How experts are chosen and weighed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    pub top_k: usize,
    pub scores: Scores,
    /// Experts are chosen from the best groups only.
    pub groups: Option<ExpertGroups>,
    /// Weights are divided by their sum.
    pub normalise: bool,
    /// Weights are multiplied by it, in the end.
    pub scale: f32,
}

/// What the router's logits become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scores {
    /// Over all experts.
    Softmax,
    Sigmoid,
    /// Logits choose; the weights are the softmax over the chosen.
    SoftmaxOfChosen,
}

/// Experts in groups of neighbouring ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertGroups {
    pub count: usize,
    pub chosen: usize,
    pub score: GroupScore,
}

/// What a group is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupScore {
    Best,
    SumOfTwoBest,
}

/// Added to a sum of weights before they are divided by it, as sigmoids may all be 0.
pub(crate) const LEAST_WEIGHT_SUM: f32 = 1e-20;

// === impl MoeRoute ===

impl<B: DeviceTypes> MoeRoute<'_, B> {
    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be, or there are
    /// fewer experts to choose from than are wanted.
    pub(crate) fn check(&self) {
        let Self {
            logits,
            num_experts,
            choice_bias,
            routing,
            chosen,
            weights,
            rows,
        } = *self;
        routing.check(num_experts);
        let choices = rows * routing.top_k;
        logits.expect_elements("moe_route logits", &[DType::F32], rows * num_experts);
        chosen.expect_elements("moe_route chosen", &[DType::U32], choices);
        weights.expect_elements("moe_route weights", &[DType::F32], choices);
        chosen.expect_apart("moe_route chosen", &[logits, weights]);
        weights.expect_apart("moe_route weights", &[logits]);
        if let Some(bias) = choice_bias {
            bias.expect_elements("moe_route choice bias", &[DType::F32], num_experts);
            bias.expect_apart("moe_route choice bias", &[chosen, weights]);
        }
    }
}

// === impl Routing ===

impl Routing {
    fn check(&self, num_experts: usize) {
        let choice = self.groups.map_or(num_experts, |groups| {
            let ExpertGroups {
                count,
                chosen,
                score,
            } = groups;
            let least = match score {
                GroupScore::Best => 1,
                GroupScore::SumOfTwoBest => 2,
            };
            assert!(
                (1..=count).contains(&chosen)
                    && num_experts.is_multiple_of(count)
                    && num_experts / count >= least,
                "moe_route: {groups:?} of {num_experts} experts"
            );
            num_experts / count * chosen
        });
        let top_k = self.top_k;
        assert!(
            (1..=choice).contains(&top_k),
            "moe_route: {top_k} of {choice} experts"
        );
    }
}
