//! The gated delta rule, token after token.

use crate::ops::{GdnScan, GdnShape, L2_EPS};
use crate::tch::handle::TchBackend;
use crate::tch::memory::{int, ints};
use crate::tch::states::{floats, heads_of, seqs_of};
use tch::{Kind, Tensor};

/// What a token brings, all in f32.
struct Token {
    /// `[num_v_heads][k_dim][1]`.
    q: Tensor,
    k: Tensor,
    /// `[num_v_heads][1][v_dim]`.
    v: Tensor,
    /// `[num_v_heads][1][1]`.
    decay: Tensor,
    beta: Tensor,
}

pub(in crate::tch) fn gdn_scan(op: GdnScan<'_, TchBackend>) -> Result<(), String> {
    let shape = op.shape();
    let GdnShape {
        num_v_heads,
        k_dim,
        v_dim,
        ..
    } = shape;
    let (states, layer, rows) = (op.states, op.layer, op.batch.num_tokens);
    let heads = [rows, num_v_heads];
    let gates = [op.a, op.b].map(|gate| {
        let gate = gate
            .values
            .strided("delta gate", 0, heads, [gate.row_stride, 1]);
        gate.to_kind(Kind::Float)
    });
    let decay = op.decay.view("decay", [num_v_heads]);
    let steps = (&gates[0] + op.dt_bias.view("dt_bias", [num_v_heads])).softplus();
    let (decay, beta) = ((steps * decay).exp(), gates[1].sigmoid());
    let qkv = op.qkv.floats("delta qkv", [rows, shape.qkv_width()]);
    let out = op.out.view("delta out", [rows, num_v_heads, v_dim]);
    for seq in seqs_of(op.batch, op.state_rows, states.num_slots)? {
        let mut state = match seq.read {
            Some(slot) => Tensor::stack(&floats(&heads_of(states, layer, slot, k_dim)), 0),
            None => Tensor::zeros(
                ints([num_v_heads, k_dim, v_dim]),
                (Kind::Float, qkv.device()),
            ),
        };
        let keep = |state: &Tensor, slot| {
            for (head, mut kept) in (0..).zip(heads_of(states, layer, slot, k_dim)) {
                kept.copy_(&state.get(head));
            }
        };
        for row in seq.rows.clone() {
            let token = token(&shape, [&qkv, &decay, &beta], int(row));
            let read = step(&mut state, &token);
            out.get(int(row)).copy_(&read);
            if let Some(slot) = seq.snapshot_after(row) {
                keep(&state, slot);
            }
        }
        if let Some(slot) = seq.write {
            keep(&state, slot);
        }
    }
    Ok(())
}

fn token(shape: &GdnShape, [qkv, decay, beta]: [&Tensor; 3], row: i64) -> Token {
    let GdnShape {
        num_k_heads,
        num_v_heads,
        k_dim,
        v_dim,
    } = *shape;
    let widths = ints([shape.k_width(), shape.k_width(), shape.v_width()]);
    let parts = qkv.get(row).split_with_sizes(widths, 0);
    let group = num_v_heads / num_k_heads;
    let spread = |x: &Tensor| {
        let x = x.view(ints([num_k_heads, 1, k_dim]));
        let length = x.square().sum_dim_intlist(-1, true, Kind::Float) + f64::from(L2_EPS);
        let unit = (x * length.rsqrt()).expand(ints([num_k_heads, group, k_dim]), false);
        unit.reshape(ints([num_v_heads, k_dim, 1]))
    };
    let per_head = |x: &Tensor| x.get(row).view([int(num_v_heads), 1, 1]);
    Token {
        q: spread(&parts[0]) * (k_dim as f64).powf(-0.5),
        k: spread(&parts[1]),
        v: parts[2].view(ints([num_v_heads, 1, v_dim])),
        decay: per_head(decay),
        beta: per_head(beta),
    }
}

/// `[num_v_heads][v_dim]`, and the next state.
fn step(state: &mut Tensor, token: &Token) -> Tensor {
    let sum = |x: Tensor| x.sum_dim_intlist(1, true, Kind::Float);
    let decayed = &*state * &token.decay;
    let delta = (&token.v - sum(&decayed * &token.k)) * &token.beta;
    *state = decayed + &token.k * delta;
    sum(&*state * &token.q).squeeze_dim(1)
}
