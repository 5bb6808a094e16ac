//! The experts' feed-forwards, one expert after another.

use super::linear::glu;
use crate::device_types::ExpertMatrices as _;
use crate::k_order::EXPERT_SHARES;
use crate::ops::MoeExperts;
use crate::tch::handle::TchBackend;
use crate::tch::memory::{TchBuffer, int, ints};
use crate::tch::weights::TchMatrix;
use tch::{Kind, Tensor};

pub(in crate::tch) fn moe_experts(op: MoeExperts<'_, TchBackend>) -> Result<(), String> {
    let MoeExperts {
        x,
        chosen,
        weights,
        top_k,
        num_experts,
        experts,
        first_expert,
        bias,
        glu: epilogue,
        gated: _,
        terms: _,
        sums,
        rows,
    } = op;
    let hidden = experts.hidden();
    let x = x.floats("moe_experts x", [rows, hidden]);
    let chosen = chosen.words("moe_experts chosen", rows * top_k)?;
    if let Some(wrong) = chosen.iter().find(|id| **id as usize >= num_experts) {
        return Err(format!("expert {wrong} of {num_experts}"));
    }
    let weights = weights.view("moe_experts weights", [rows * top_k]);
    let device = x.device();
    // Of each share, in the order of choices.
    let shares = Tensor::zeros(ints([EXPERT_SHARES, rows, hidden]), (Kind::Float, device));
    for slot in 0..top_k {
        for (expert, (gate_up, down)) in experts.gate_up.iter().zip(&experts.down).enumerate() {
            let id = first_expert + expert;
            let choices = (0..rows).map(|row| row * top_k + slot);
            let choices: Vec<usize> = choices.filter(|at| chosen[*at] as usize == id).collect();
            if choices.is_empty() {
                continue;
            }
            let of_row: Vec<usize> = choices.iter().map(|at| at / top_k).collect();
            let of_row = indices(&of_row, device);
            let biases = bias.as_ref().map(|bias| (bias.gate_up, bias.down)).unzip();
            let gated = product(&x.index_select(0, &of_row), gate_up, biases.0, expert);
            let terms = product(&glu(epilogue, &gated), down, biases.1, expert);
            let factors = weights.index_select(0, &indices(&choices, device));
            let share = shares.select(0, int(EXPERT_SHARES * id / num_experts));
            let _ = share
                .shallow_clone()
                .index_add_(0, &of_row, &(terms * factors.unsqueeze(-1)));
        }
    }
    let pairs = |count: usize, sums: &Tensor| {
        let pairs = sums.view(ints([count, 2, rows, hidden]));
        pairs.select(1, 0) + pairs.select(1, 1)
    };
    let total = pairs(1, &pairs(2, &pairs(4, &shares)));
    sums.store("moe_experts sums", &total);
    Ok(())
}

/// An expert's linear.
fn product(x: &Tensor, w: &TchMatrix, bias: Option<&TchBuffer>, expert: usize) -> Tensor {
    let y = x.matmul(&w.rows.floats("expert", [w.n, w.k]).transpose(0, 1));
    match bias {
        Some(bias) => y + bias.strided("expert bias", expert * w.n, [w.n], [1]),
        None => y,
    }
}

fn indices(indices: &[usize], device: tch::Device) -> Tensor {
    let indices: Vec<i64> = indices.iter().map(|index| int(*index)).collect();
    Tensor::from_slice(&indices).to_device(device)
}
