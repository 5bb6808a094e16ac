//! The feed-forwards of chosen experts, weighed and added up.

use super::linear::Epilogue;
use crate::buffer::DeviceBuffer;
use crate::device_types::{DeviceTypes, ExpertMatrices};
use crate::dtype::DType;
use crate::weight::WeightSource;

/// `sums[r] = Σ weight · down(glu(gate_up(x[r])))` over the row's chosen experts.
///
/// Expert `e` of `E` belongs to share `8·e / E`. A share adds its terms in the order of the row's
/// choices, and the eight shares are added as
/// `((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))`; so ranks that have neighbouring shares add
/// their sums in the same tree. Experts of other ranks contribute nothing here.
#[derive(Debug)]
pub struct MoeExperts<'a, B: DeviceTypes> {
    /// `[rows][hidden]`.
    pub x: &'a B::Buffer,
    /// `U32 [rows][top_k]`, below `num_experts`.
    pub chosen: &'a B::Buffer,
    /// `F32 [rows][top_k]`.
    pub weights: &'a B::Buffer,
    pub top_k: usize,
    /// Of the layer, over all ranks.
    pub num_experts: usize,
    /// Those from `first_expert` on.
    pub experts: &'a B::Experts,
    pub first_expert: usize,
    pub bias: Option<ExpertBias<'a, B>>,
    /// One that joins gate and up.
    pub glu: Epilogue,
    /// Scratch, `[rows · top_k][width]`.
    pub gated: &'a B::Buffer,
    /// Scratch, `[rows · top_k][hidden]`.
    pub terms: &'a B::Buffer,
    /// `[rows][hidden]`. Shares no memory with the others.
    pub sums: &'a B::Buffer,
    pub rows: usize,
}

/// What the linears of the experts that are here add.
#[derive(Debug)]
pub struct ExpertBias<'a, B: DeviceTypes> {
    /// `F32 [experts][2 · width]`, gate and up in turn.
    pub gate_up: &'a B::Buffer,
    /// `F32 [experts][hidden]`.
    pub down: &'a B::Buffer,
}

/// One expert as it lies in a file.
#[derive(Clone, Copy, Debug)]
pub struct ExpertSource<'a> {
    pub gate: WeightSource<'a>,
    pub up: WeightSource<'a>,
    pub down: WeightSource<'a>,
}

// === impl MoeExperts ===

impl<B: DeviceTypes> MoeExperts<'_, B> {
    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be.
    pub(crate) fn check(&self, activations: DType) {
        let Self {
            x,
            chosen,
            weights,
            top_k,
            num_experts,
            experts,
            first_expert,
            ref bias,
            glu,
            gated,
            terms,
            sums,
            rows,
        } = *self;
        assert!(glu.joins_pairs(), "moe_experts: {glu:?} joins no pairs");
        assert!(top_k > 0, "moe_experts: a token chooses no expert");
        let last = first_expert + experts.count();
        assert!(
            last <= num_experts,
            "moe_experts: experts up to {last} of {num_experts}"
        );
        let (hidden, choices) = (experts.hidden(), rows * top_k);
        x.expect_elements("moe_experts x", &[activations], rows * hidden);
        chosen.expect_elements("moe_experts chosen", &[DType::U32], choices);
        weights.expect_elements("moe_experts weights", &[DType::F32], choices);
        gated.expect_elements(
            "moe_experts gated",
            &[activations],
            choices * experts.width(),
        );
        terms.expect_elements("moe_experts terms", &[activations], choices * hidden);
        sums.expect_elements("moe_experts sums", &[activations], rows * hidden);
        gated.expect_apart("moe_experts gated", &[x, chosen, weights, terms, sums]);
        terms.expect_apart("moe_experts terms", &[x, chosen, weights, sums]);
        sums.expect_apart("moe_experts sums", &[x, chosen, weights]);
        if let Some(ExpertBias { gate_up, down }) = bias {
            let (gates, downs) = (2 * experts.width(), hidden);
            gate_up.expect_elements("moe_experts bias", &[DType::F32], experts.count() * gates);
            down.expect_elements("moe_experts bias", &[DType::F32], experts.count() * downs);
            for scratch in [gated, terms, sums] {
                scratch.expect_apart("moe_experts scratch", &[gate_up, down]);
            }
        }
    }
}
