//! The linear op.

use crate::ops::{Epilogue, Linear};
use crate::tch::handle::TchBackend;
use tch::Tensor;

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
    match epilogue {
        Epilogue::Store => out.store("linear out", &y),
        Epilogue::AddResidual => {
            let sum = out.floats("linear out", [rows, n]) + &y;
            out.store("linear out", &sum);
        }
        Epilogue::SwiGlu | Epilogue::GeluTanhGlu | Epilogue::ClampedSwiGlu { .. } => {
            out.store("linear out", &glu(epilogue, &y));
        }
        Epilogue::SoftCap(cap) => {
            let cap = f64::from(cap);
            out.store("linear out", &((&y / cap).tanh() * cap));
        }
    }
    Ok(())
}

/// Joins the gates and ups in the rows of `y`.
pub(super) fn glu(epilogue: Epilogue, y: &Tensor) -> Tensor {
    let pairs = y.unflatten(-1, [-1, 2]);
    let (gate, up) = (pairs.select(-1, 0), pairs.select(-1, 1));
    match epilogue {
        Epilogue::SwiGlu => gate.silu() * up,
        Epilogue::GeluTanhGlu => gate.gelu("tanh") * up,
        Epilogue::ClampedSwiGlu { alpha, limit } => {
            let limit = f64::from(limit);
            let (gate, up) = (gate.clamp_max(limit), up.clamp(-limit, limit));
            let swish = &gate * (&gate * f64::from(alpha)).sigmoid();
            swish * (up + 1.0)
        }
        Epilogue::Store | Epilogue::AddResidual | Epilogue::SoftCap(_) => {
            unreachable!("{epilogue:?} joins no pairs")
        }
    }
}
