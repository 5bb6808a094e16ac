//! RMS norm, with the residual addition before it.

use crate::buffer::DeviceBuffer;
use crate::ops::{RmsNorm, WriteMode};
use crate::tch::handle::TchBackend;
use tch::{Kind, Tensor};

pub(in crate::tch) fn rms_norm(op: RmsNorm<'_, TchBackend>) -> Result<(), String> {
    let RmsNorm {
        x,
        add,
        weight,
        eps,
        out,
        into,
        rows,
    } = op;
    let shape = [rows, weight.len()];
    if let Some(add) = add {
        x.store("x", &(x.floats("x", shape) + add.floats("add", shape)));
    }
    let weight = weight.view("norm weight", [weight.len()]);
    // Of the sum as it was stored, which the next op reads, too.
    let normed = normed(&x.floats("x", shape), &weight, eps);
    let written = match into {
        WriteMode::Store => normed,
        WriteMode::Add => out.floats("norm out", shape) + normed,
    };
    out.store("norm out", &written);
    Ok(())
}

/// Divides by the root mean square of the last dimension.
pub(super) fn normed(x: &Tensor, weight: &Tensor, eps: f32) -> Tensor {
    let mean = x.square().mean_dim(-1, true, Kind::Float);
    x * (mean + f64::from(eps)).rsqrt() * weight
}
