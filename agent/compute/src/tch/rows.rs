//! Ops on rows: embedding, norm, rotary table and gathering.

use super::backend::TchBackend;
use super::memory::index_tensor;
use crate::buffer::DeviceBuffer;
use crate::ops::{Embed, GatherRows, NO_ROW, RmsNorm, RopeTable};
use crate::sampling::NO_TOKEN;
use tch::{Kind, Tensor};

pub(super) fn embed(op: Embed<'_, TchBackend>) -> Result<(), String> {
    let Embed {
        table,
        token_ids,
        out,
        rows,
    } = op;
    let mut ids = token_ids.words("token_ids", rows)?;
    let known: Vec<_> = ids.iter().map(|id| *id != NO_TOKEN).collect();
    ids.iter_mut()
        .filter(|id| **id == NO_TOKEN)
        .for_each(|id| *id = 0);
    let ids = index_tensor(&ids, "token id", "the vocabulary", table.n, out.device())?;
    let known = Tensor::from_slice(&known)
        .to_device(out.device())
        .unsqueeze(1);
    let table = table.rows.view("table", [table.n, table.k]);
    out.store("embed out", &(table.index_select(0, &ids) * known));
    Ok(())
}

pub(super) fn rms_norm(op: RmsNorm<'_, TchBackend>) -> Result<(), String> {
    let RmsNorm {
        x,
        add,
        weight,
        eps,
        out,
        rows,
    } = op;
    let shape = [rows, weight.len()];
    if let Some(add) = add {
        x.store("x", &(x.floats("x", shape) + add.floats("add", shape)));
    }
    let weight = weight.view("norm weight", [weight.len()]);
    // Of the sum as it was stored, which the next op reads, too.
    out.store("norm out", &normed(&x.floats("x", shape), &weight, eps));
    Ok(())
}

/// Divides by the root mean square of the last dimension.
pub(super) fn normed(x: &Tensor, weight: &Tensor, eps: f32) -> Tensor {
    let mean = x.square().mean_dim(-1, true, Kind::Float);
    x * (mean + f64::from(eps)).rsqrt() * weight
}

pub(super) fn rope_table(op: RopeTable<'_, TchBackend>) -> Result<(), String> {
    let RopeTable {
        positions,
        inv_freq,
        factor,
        out,
        rows,
    } = op;
    // Below 2^31, where torch's signed words say the same.
    let positions = positions.floats("positions", [rows, 1]);
    // The angle is rounded to f32, as the reference implementations do.
    let angles = positions * inv_freq.view("inv_freq", [1, inv_freq.len()]);
    let angles = angles.to_kind(Kind::Double);
    let table = Tensor::cat(&[angles.cos(), angles.sin()], 1).to_kind(Kind::Float);
    out.store("rope_table out", &(table * f64::from(factor)));
    Ok(())
}

pub(super) fn gather_rows(op: GatherRows<'_, TchBackend>) -> Result<(), String> {
    let GatherRows {
        src,
        indices,
        out,
        row_len,
        rows,
    } = op;
    assert!(
        src.dtype() == out.dtype(),
        "gather_rows from {src:?} to {out:?}"
    );
    let indices = indices.words("indices", rows)?;
    let wanted = (0u32..).zip(indices).filter(|(_, index)| *index != NO_ROW);
    let (places, wanted): (Vec<u32>, Vec<u32>) = wanted.unzip();
    let src_rows = src.len() / row_len;
    let wanted = index_tensor(&wanted, "row", "src", src_rows, src.device())?;
    let places = index_tensor(&places, "row", "out", rows, out.device())?;
    let found = src
        .view("src", [src_rows, row_len])
        .index_select(0, &wanted);
    let _ = out
        .view("gather_rows out", [rows, row_len])
        .index_copy_(0, &places, &found);
    Ok(())
}
