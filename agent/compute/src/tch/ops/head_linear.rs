//! A product of each head with a matrix of its own.

use crate::ops::HeadLinear;
use crate::tch::handle::TchBackend;

pub(in crate::tch) fn head_linear(op: HeadLinear<'_, TchBackend>) -> Result<(), String> {
    let out_len = op.out_len();
    let HeadLinear {
        x,
        weight,
        heads,
        out,
        rows,
    } = op;
    let k = weight.k;
    let strides = |head_stride| [heads * head_stride, head_stride, 1];
    let x = x
        .values
        .strided("x", 0, [rows, heads, k], strides(x.head_stride));
    let out = out.values.strided(
        "head_linear out",
        0,
        [rows, heads, out_len],
        strides(out.head_stride),
    );
    let w = weight.rows.floats("weight", [heads, out_len, k]);
    let x = x.to_kind(tch::Kind::Float).transpose(0, 1);
    let y = x.matmul(&w.transpose(1, 2)).transpose(0, 1);
    out.shallow_clone().copy_(&y);
    Ok(())
}
