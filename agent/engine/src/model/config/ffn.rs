//! Feed-forwards of layers: dense ones and mixtures of experts.

use serde::Serialize;

/// What works on each token alone.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ffn {
    Dense(DenseFfn),
    Moe(MoeFfn),
}

/// `down(glu(gate(x), up(x)))`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DenseFfn {
    pub width: usize,
    pub glu: Glu,
    /// What is added to the residual stream is normed before.
    pub out_norm: bool,
}

/// How gate and up become one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Glu {
    /// `silu(gate) · up`.
    Silu,
    /// `gelu(gate) · up`, GELU by its approximation with tanh.
    GeluTanh,
    /// `gate · sigmoid(alpha · gate) · (up + 1)`, of a gate up to `limit` and an up within ± `limit`.
    ClampedSilu { alpha: f32, limit: f32 },
}

/// Experts, of which each token goes to a few: the best by scores of the router's product, which weigh
/// what they make, too. An expert is a feed-forward as [`DenseFfn`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MoeFfn {
    pub num_experts: usize,
    /// Experts of a token.
    pub top_k: usize,
    /// Of an expert.
    pub width: usize,
    pub scores: Scores,
    /// Experts are chosen from the best groups only.
    pub groups: Option<ExpertGroups>,
    /// A bias is added to the scores where experts are chosen.
    pub choice_bias: bool,
    /// The weights of a token's experts are divided by their sum.
    pub normalise: bool,
    /// Multiplies the weights, in the end.
    pub scale: f32,
    pub glu: Glu,
    /// The router and the experts have biases.
    pub biases: bool,
    pub shared: Option<SharedExpert>,
}

/// Experts in groups of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ExpertGroups {
    pub count: usize,
    pub chosen: usize,
    pub score: GroupScore,
}

/// What a group of experts is chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupScore {
    /// The score of its best expert.
    Best,
    SumOfTwoBest,
}

/// An expert that every token goes through.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SharedExpert {
    pub width: usize,
    /// A token decides on a factor between 0 and 1 for what it makes.
    pub gated: bool,
}

/// What an expert's product with a token becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scores {
    /// The softmax over all experts.
    Softmax,
    Sigmoid,
    /// The softmax over the token's experts.
    SoftmaxOfChosen,
}

// === impl MoeFfn ===

impl MoeFfn {
    /// Chosen and weighed by a softmax over all experts, without groups, biases and a shared one.
    pub const fn softmax(num_experts: usize, top_k: usize, width: usize) -> Self {
        Self {
            num_experts,
            top_k,
            width,
            scores: Scores::Softmax,
            groups: None,
            choice_bias: false,
            normalise: false,
            scale: 1.0,
            glu: Glu::Silu,
            biases: false,
            shared: None,
        }
    }
}

// === impl DenseFfn ===

impl DenseFfn {
    /// The usual one.
    pub const fn silu(width: usize) -> Self {
        Self {
            width,
            glu: Glu::Silu,
            out_norm: false,
        }
    }
}
