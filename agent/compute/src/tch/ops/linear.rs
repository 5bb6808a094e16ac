//! The linear op.

use crate::ops::{Epilogue, Linear};
use crate::tch::handle::TchBackend;
use crate::tch::memory::ints;

pub(in crate::tch) fn linear(op: Linear<'_, TchBackend>) -> Result<(), String> {
    let Linear {
        x,
        weight,
        epilogue,
        out,
        rows,
    } = op;
    let (n, k) = (weight.n, weight.k);
    let w = weight.rows.floats("weight", [n, k]);
    let y = x.floats("x", [rows, k]).matmul(&w.transpose(0, 1));
    match epilogue {
        Epilogue::Store => out.store("linear out", &y),
        Epilogue::AddResidual => {
            let sum = out.floats("linear out", [rows, n]) + y;
            out.store("linear out", &sum);
        }
        Epilogue::SwiGlu => {
            let pairs = y.view(ints([rows, n / 2, 2]));
            let gated = pairs.select(2, 0).silu() * pairs.select(2, 1);
            out.store("linear out", &gated);
        }
    }
    Ok(())
}
