//! The delta rule beside its definition, and what its bits depend on.

use crate::cpu::CpuBackend;
use crate::cpu::backend::tests::{floats, noise_floats, read_floats, zeros};
use crate::cpu::seq_states::tests::{StatefulOp, Step, Walk, assert_same_bits, lens_and_walk};
use crate::ops::{Backend, GdnScan, GdnShape, Strided};
use crate::states::{StateTensorView, StateView};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
struct Case {
    shape: GdnShape,
    /// Gates get as large.
    gates: f32,
}

/// What a token brings.
struct Token {
    qkv: Vec<f32>,
    a: Vec<f32>,
    b: Vec<f32>,
}

// === impl Case ===

impl Case {
    fn token(&self, seq: usize, position: usize) -> Token {
        let (seed, heads) = ((seq * 1000 + position) as u64, self.shape.num_v_heads);
        let gates = |seed| {
            let noise = noise_floats(seed, heads).into_iter();
            noise.map(|x| x * self.gates).collect()
        };
        Token {
            qkv: noise_floats(seed, self.shape.qkv_width()),
            a: gates(seed + 100_000),
            b: gates(seed + 200_000),
        }
    }

    fn decay(&self) -> Vec<f32> {
        let noise = noise_floats(7, self.shape.num_v_heads).into_iter();
        noise.map(|x| -(x + 1.0)).collect()
    }

    fn dt_bias(&self) -> Vec<f32> {
        noise_floats(8, self.shape.num_v_heads)
    }

    /// The definition, in f64: the outputs of a head, and its state afterwards.
    fn expected(&self, seq: usize, len: usize, head: usize) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
        let GdnShape {
            num_k_heads,
            num_v_heads,
            k_dim,
            v_dim,
        } = self.shape;
        let k_head = head / (num_v_heads / num_k_heads);
        let mut state = vec![vec![0.0; v_dim]; k_dim];
        let mut outs = Vec::new();
        for position in 0..len {
            let token = self.token(seq, position);
            let part = |from: usize, len: usize| {
                let part = token.qkv[from..from + len].iter();
                part.map(|x| f64::from(*x)).collect::<Vec<_>>()
            };
            let unit = |x: Vec<f64>| {
                let length = (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                x.into_iter().map(|x| x / length).collect::<Vec<_>>()
            };
            let q = unit(part(k_head * k_dim, k_dim));
            let k = unit(part((num_k_heads + k_head) * k_dim, k_dim));
            let v = part(2 * num_k_heads * k_dim + head * v_dim, v_dim);
            let step = f64::from(token.a[head]) + f64::from(self.dt_bias()[head]);
            let decay = (f64::from(self.decay()[head]) * step.exp().ln_1p()).exp();
            let beta = 1.0 / (1.0 + (-f64::from(token.b[head])).exp());
            let column = |state: &[Vec<f64>], x: &[f64], j: usize| {
                state.iter().zip(x).map(|(row, x)| row[j] * x).sum::<f64>()
            };
            state.iter_mut().flatten().for_each(|s| *s *= decay);
            for j in 0..v_dim {
                let delta = beta * (v[j] - column(&state, &k, j));
                state
                    .iter_mut()
                    .zip(&k)
                    .for_each(|(row, k)| row[j] += k * delta);
            }
            let scale = (k_dim as f64).powf(-0.5);
            outs.push((0..v_dim).map(|j| column(&state, &q, j) * scale).collect());
        }
        (outs, state)
    }
}

impl StatefulOp for Case {
    fn tensors(&self) -> Vec<StateTensorView> {
        vec![StateTensorView {
            heads: self.shape.num_v_heads,
            elements: self.shape.k_dim * self.shape.v_dim,
        }]
    }

    fn run(&self, backend: &CpuBackend, states: &StateView<CpuBackend>, step: &Step) -> Vec<f32> {
        let heads = self.shape.num_v_heads;
        let (mut qkv, mut gates) = (Vec::new(), Vec::new());
        for (seq, position) in &step.rows {
            let token = self.token(*seq, *position);
            qkv.extend(token.qkv);
            // As they lie in a joined linear's rows: b, a, and something else.
            gates.extend([token.b, token.a, vec![f32::NAN; 2]].concat());
        }
        let (qkv, gates) = (floats(backend, &qkv), floats(backend, &gates));
        let row_stride = 2 * heads + 2;
        let a = crate::DeviceBuffer::slice(&gates, heads..crate::DeviceBuffer::len(&gates));
        let out = zeros(backend, step.rows.len() * self.shape.v_width());
        backend.gdn_scan(GdnScan {
            qkv: &qkv,
            num_k_heads: self.shape.num_k_heads,
            k_dim: self.shape.k_dim,
            a: Strided {
                values: &a,
                row_stride,
            },
            b: Strided {
                values: &gates,
                row_stride,
            },
            decay: &floats(backend, &self.decay()),
            dt_bias: &floats(backend, &self.dt_bias()),
            batch: &step.batch,
            states,
            state_rows: &step.state_rows,
            layer: step.layer,
            out: &out,
        });
        read_floats(backend, &out)
    }
}

fn near(what: &str, actual: u32, expected: f64) {
    let actual = f64::from(f32::from_bits(actual));
    let off = (actual - expected).abs() / expected.abs().max(1.0);
    assert!(off < 1e-5, "{what}: {actual} beside {expected}");
}

#[test]
fn the_scan_is_the_recurrent_definition() {
    for (shape, gates) in [
        ([1, 1, 1, 1], 1.0),
        ([2, 4, 16, 16], 2.0),
        ([1, 3, 128, 72], 8.0),
    ] {
        let [num_k_heads, num_v_heads, k_dim, v_dim] = shape;
        let shape = GdnShape {
            num_k_heads,
            num_v_heads,
            k_dim,
            v_dim,
        };
        let case = Case { shape, gates };
        let lens = [150, 3];
        let walked = Walk::plain(&lens).go(&case);
        for (seq, len) in lens.into_iter().enumerate() {
            for head in 0..num_v_heads {
                let (outs, state) = case.expected(seq, len, head);
                for (position, out) in outs.iter().enumerate() {
                    let at = position * shape.v_width() + head * v_dim;
                    for (j, expected) in out.iter().enumerate() {
                        near("out", walked.outs[seq][at + j], *expected);
                    }
                }
                let kept = &walked.states[seq][head * k_dim * v_dim..][..k_dim * v_dim];
                for (actual, expected) in kept.iter().zip(state.iter().flatten()) {
                    near("state", *actual, *expected);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn bits_depend_on_the_sequences_own_tokens_only(
        (lens, walk) in lens_and_walk(),
        num_k_heads in 1usize..3,
        group in 1usize..4,
        k_dim in 1usize..40,
        v_dim in 1usize..70,
    ) {
        let num_v_heads = num_k_heads * group;
        let shape = GdnShape { num_k_heads, num_v_heads, k_dim, v_dim };
        assert_same_bits(&Case { shape, gates: 3.0 }, &lens, &walk);
    }
}
