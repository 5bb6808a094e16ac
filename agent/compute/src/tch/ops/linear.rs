//! The linear op.

use crate::ops::{Epilogue, Linear};
use crate::tch::handle::TchBackend;
use crate::tch::memory::ints;

pub(in crate::tch) fn linear(op: Linear<'_, TchBackend>) -> Result<(), String> {
    let Linear {
        x,
        weight,
        bias,
        epilogue,
        out,
        rows,
    } = op;
    let (n, k) = (weight.n, weight.k);
    let w = weight.rows.floats("weight", [n, k]);
    let y = x.floats("x", [rows, k]).matmul(&w.transpose(0, 1));
    let y = match bias {
        Some(bias) => y + bias.view("linear bias", [n]),
        None => y,
    };
    let pairs = || {
        let pairs = y.view(ints([rows, n / 2, 2]));
        (pairs.select(2, 0), pairs.select(2, 1))
    };
    match epilogue {
        Epilogue::Store => out.store("linear out", &y),
        Epilogue::AddResidual => {
            let sum = out.floats("linear out", [rows, n]) + &y;
            out.store("linear out", &sum);
        }
        Epilogue::SwiGlu => {
            let (gate, up) = pairs();
            out.store("linear out", &(gate.silu() * up));
        }
        Epilogue::GeluTanhGlu => {
            let (gate, up) = pairs();
            out.store("linear out", &(gate.gelu("tanh") * up));
        }
        Epilogue::ClampedSwiGlu { alpha, limit } => {
            let (gate, up) = pairs();
            let limit = f64::from(limit);
            let (gate, up) = (gate.clamp_max(limit), up.clamp(-limit, limit));
            let swish = &gate * (&gate * f64::from(alpha)).sigmoid();
            out.store("linear out", &(swish * (up + 1.0)));
        }
        Epilogue::SoftCap(cap) => {
            let cap = f64::from(cap);
            out.store("linear out", &((&y / cap).tanh() * cap));
        }
    }
    Ok(())
}
