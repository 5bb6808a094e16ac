//! The choice of experts: a warp has a row.

use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{Kernel, MOE_ROUTE_WARPS, MoeRouteArgs, to_u32};
use crate::cuda::shared::Shared;
use crate::dtype::DType;
use crate::ops::{ExpertGroups, GroupScore, MoeRoute, Scores};

pub(in crate::cuda) fn moe_route(
    shared: &Shared,
    op: &MoeRoute<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let (rows, num_experts, routing) = (op.rows, op.num_experts, op.routing);
    let (top_k, floats) = (routing.top_k, [DType::F32]);
    let (groups, groups_chosen, group_best) = match routing.groups {
        None => (0, 0, 0),
        Some(ExpertGroups {
            count,
            chosen,
            score: GroupScore::Best,
        }) => (count, chosen, 1),
        Some(ExpertGroups {
            count,
            chosen,
            score: GroupScore::SumOfTwoBest,
        }) => (count, chosen, 2),
    };
    let args = MoeRouteArgs {
        logits: op
            .logits
            .addr_of("moe_route logits", &floats, rows * num_experts),
        choice_bias: op.choice_bias.map_or(0, |bias| {
            bias.addr_of("moe_route choice bias", &floats, num_experts)
        }),
        chosen: op
            .chosen
            .addr_of("moe_route chosen", &[DType::U32], rows * top_k),
        weights: op
            .weights
            .addr_of("moe_route weights", &floats, rows * top_k),
        rows: to_u32(rows),
        num_experts: to_u32(num_experts),
        top_k: to_u32(top_k),
        scores: match routing.scores {
            Scores::Softmax => 0,
            Scores::Sigmoid => 1,
            Scores::SoftmaxOfChosen => 2,
        },
        groups: to_u32(groups),
        groups_chosen: to_u32(groups_chosen),
        group_best,
        normalise: u32::from(routing.normalise),
        scale: routing.scale,
        pad: 0,
    };
    let words = MOE_ROUTE_WARPS * (2 * num_experts + groups + top_k);
    let grid = [to_u32(rows.div_ceil(MOE_ROUTE_WARPS)), 1, 1];
    shared.launch(Kernel::MoeRoute, grid, 4 * words, &args)
}
