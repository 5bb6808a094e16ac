//! Facts about convolutions over sequences that come in pieces.

use crate::cpu::CpuBackend;
use crate::cpu::backend::tests::{floats, mk_backend, noise_floats, read_floats, words, zeros};
use crate::cpu::isa::Isa;
use crate::cpu::seq_states::tests::{
    StatefulOp, Step, Walk, assert_same_bits, lens_and_walk, mk_batch,
};
use crate::error::ComputeError;
use crate::ops::{Backend, CausalConv, Strided};
use crate::states::{StateRows, StateTensorView, StateView};
use proptest::prelude::*;

/// Rows are wider than the channels.
const BESIDE: usize = 3;
const LEN_MAX: usize = 20;

#[derive(Clone, Debug)]
struct Case {
    taps: usize,
    /// Heads and their channels, by tensor.
    heads: Vec<(usize, usize)>,
}

// === impl Case ===

impl Case {
    fn channels(&self) -> usize {
        self.heads.iter().map(|(heads, width)| heads * width).sum()
    }

    /// A position's row of x, with what lies beside it.
    fn x(&self, seq: usize, position: usize) -> Vec<f32> {
        noise_floats((seq * LEN_MAX + position) as u64, self.channels() + BESIDE)
    }

    fn weight(&self) -> Vec<f32> {
        noise_floats(9999, self.taps * self.channels())
    }

    fn expected(&self, seq: usize, position: usize, channel: usize) -> f64 {
        let weight = self.weight();
        let taken = |tap: usize| {
            let back = self.taps - 1 - tap;
            let x = position
                .checked_sub(back)
                .map_or(0.0, |at| self.x(seq, at)[channel]);
            f64::from(weight[tap * self.channels() + channel]) * f64::from(x)
        };
        let sum: f64 = (0..self.taps).map(taken).sum();
        sum / (1.0 + (-sum).exp())
    }
}

impl StatefulOp for Case {
    fn tensors(&self) -> Vec<StateTensorView> {
        let tensors = self.heads.iter().map(|(heads, width)| StateTensorView {
            heads: *heads,
            elements: (self.taps - 1) * width,
        });
        tensors.collect()
    }

    fn run(&self, backend: &CpuBackend, states: &StateView<CpuBackend>, step: &Step) -> Vec<f32> {
        let rows = step.rows.iter();
        let x: Vec<f32> = rows.flat_map(|(seq, at)| self.x(*seq, *at)).collect();
        let out = zeros(backend, step.rows.len() * self.channels());
        backend.causal_conv(CausalConv {
            x: Strided {
                values: &floats(backend, &x),
                row_stride: self.channels() + BESIDE,
            },
            weight: &floats(backend, &self.weight()),
            taps: self.taps,
            batch: &step.batch,
            states,
            state_rows: &step.state_rows,
            layer: step.layer,
            out: &out,
        });
        read_floats(backend, &out)
    }
}

#[test]
fn a_convolution_sums_the_last_rows_of_each_channel_and_gates_itself() {
    for taps in [2, 4, 5] {
        let case = Case {
            taps,
            heads: vec![(2, 16), (1, 5), (3, 33)],
        };
        let walked = Walk::plain(&[9, 1]).go(&case);
        for (seq, out) in walked.outs.iter().enumerate() {
            for (i, y) in out.iter().enumerate() {
                let (position, channel) = (i / case.channels(), i % case.channels());
                let expected = case.expected(seq, position, channel);
                let y = f64::from(f32::from_bits(*y));
                assert!((y - expected).abs() < 1e-6, "{y} beside {expected}");
            }
        }
    }
}

#[test]
fn the_state_is_the_last_rows_oldest_first() {
    let case = Case {
        taps: 3,
        heads: vec![(2, 2), (1, 1)],
    };
    let walked = Walk::plain(&[4]).go(&case);
    let rows = [case.x(0, 2), case.x(0, 3)];
    // Head by head: both rows of its channels.
    let expected: Vec<u32> = [0..2, 2..4, 4..5]
        .into_iter()
        .flat_map(|head| rows.each_ref().map(|row| row[head.clone()].to_vec()))
        .flatten()
        .map(f32::to_bits)
        .collect();
    assert_eq!(walked.states[0], expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn bits_depend_on_the_sequences_own_tokens_only(
        (lens, walk) in lens_and_walk(),
        taps in 2usize..6,
        heads in prop::collection::vec((1usize..3, 1usize..40), 1..4),
    ) {
        assert_same_bits(&Case { taps, heads }, &lens, &walk);
    }
}

#[test]
fn a_wrong_slot_faults_the_queue() {
    let case = Case {
        taps: 2,
        heads: vec![(1, 4)],
    };
    let backend = mk_backend(2, Isa::detect());
    let states = StateView {
        region: zeros(&backend, 8),
        num_slots: 2,
        num_layers: 1,
        tensors: case.tensors().into(),
    };
    let slots = |slots: [u32; 2]| words(&backend, &slots);
    let step = Step {
        rows: vec![(0, 0), (1, 0)],
        batch: mk_batch(&backend, &[0, 1, 2]),
        state_rows: StateRows {
            read: slots([0, 1]),
            write: slots([1, 0]),
            snapshot: slots([u32::MAX; 2]),
        },
        layer: 0,
    };
    let x = zeros(&backend, 2 * (4 + BESIDE));
    let out = zeros(&backend, 8);
    backend.causal_conv(CausalConv {
        x: Strided {
            values: &x,
            row_stride: 4 + BESIDE,
        },
        weight: &zeros(&backend, 8),
        taps: 2,
        batch: &step.batch,
        states: &states,
        state_rows: &step.state_rows,
        layer: 0,
        out: &out,
    });
    let fault = crate::Ticket::wait(backend.fence()).unwrap_err();
    let ComputeError::DeviceFault { op, message } = fault else {
        panic!("{fault}");
    };
    assert_eq!(op, "causal_conv");
    assert_eq!(
        message,
        "state slot 0 is written for sequence 1 and read for 0"
    );
}
