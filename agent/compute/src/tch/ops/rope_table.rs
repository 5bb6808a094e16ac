//! Cosines and sines of a step's positions.

use crate::buffer::DeviceBuffer;
use crate::ops::RopeTable;
use crate::tch::handle::TchBackend;
use tch::{Kind, Tensor};

pub(in crate::tch) fn rope_table(op: RopeTable<'_, TchBackend>) -> Result<(), String> {
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
