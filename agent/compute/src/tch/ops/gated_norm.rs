//! RMS norm of each head, with a gate.

use super::rms_norm::normed;
use crate::buffer::DeviceBuffer;
use crate::ops::GatedNorm;
use crate::tch::handle::TchBackend;
use tch::Kind;

pub(in crate::tch) fn gated_norm(op: GatedNorm<'_, TchBackend>) -> Result<(), String> {
    let GatedNorm {
        x,
        z,
        weight,
        eps,
        num_heads,
        rows,
    } = op;
    let head_dim = weight.len();
    let shape = [rows, num_heads, head_dim];
    let z = z
        .values
        .strided("gate", 0, shape, [z.row_stride, head_dim, 1]);
    let weight = weight.view("norm weight", [head_dim]);
    let normed = normed(&x.floats("gated_norm x", shape), &weight, eps);
    x.store("gated_norm x", &(normed * z.to_kind(Kind::Float).silu()));
    Ok(())
}
