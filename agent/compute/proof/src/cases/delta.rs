//! Ops of gated delta layers over two sequences, of which one goes on from a state and leaves a snapshot.

use super::{Subject, rounded, values};
use pd_compute::{
    Backend, BatchView, CausalConv, CopyDirection, CopyStates, DType, DeviceBuffer, GatedNorm,
    GdnScan, NO_SLOT, StateRows, StateTensorView, StateView, Strided,
};

/// Heads and their sizes.
#[derive(Clone, Copy, Debug)]
pub struct DeltaShape {
    pub num_k_heads: usize,
    pub num_v_heads: usize,
    pub k_dim: usize,
    pub v_dim: usize,
    pub taps: usize,
}

const NUM_SLOTS: usize = 5;
const NUM_LAYERS: usize = 2;
/// Rows of the two sequences.
const ENDS: [u32; 3] = [0, 66, 69];
const ROWS: usize = 69;
/// Elements of a row that belong to no op.
const BESIDE: usize = 5;

// === impl DeltaShape ===

impl DeltaShape {
    fn channels(&self) -> usize {
        2 * self.num_k_heads * self.k_dim + self.v_width()
    }

    fn v_width(&self) -> usize {
        self.num_v_heads * self.v_dim
    }

    fn conv_tensors(&self) -> [StateTensorView; 3] {
        let tensor = |heads, width| StateTensorView {
            heads,
            elements: (self.taps - 1) * width,
        };
        let (k, v) = (
            tensor(self.num_k_heads, self.k_dim),
            tensor(self.num_v_heads, self.v_dim),
        );
        [k, k, v]
    }

    fn recurrent_tensors(&self) -> [StateTensorView; 1] {
        [StateTensorView {
            heads: self.num_v_heads,
            elements: self.k_dim * self.v_dim,
        }]
    }
}

/// Of `dtype`, with values that another holds, too.
fn states<B: Backend>(
    subject: &Subject<B>,
    (dtype, rounding): (DType, DType),
    tensors: &[StateTensorView],
) -> StateView<B> {
    let mut states = StateView {
        region: subject.zeros(dtype, 0),
        num_slots: NUM_SLOTS,
        num_layers: NUM_LAYERS,
        tensors: tensors.into(),
    };
    let len = NUM_SLOTS * states.item_len();
    states.region = subject.zeros(dtype, len);
    subject.write(&states.region, &rounded(rounding, values(1, len)));
    states
}

/// The second sequence reads slot 3 and writes 1, the first begins, and leaves a snapshot in slot 0.
fn step<B: Backend>(subject: &Subject<B>) -> (BatchView<B>, StateRows<B>) {
    let none = subject.words(&[]);
    let batch = BatchView {
        num_tokens: ROWS,
        num_seqs: 2,
        token_ids: none.clone(),
        positions: none.clone(),
        q_indptr: subject.words(&ENDS),
        kv_lens: none.clone(),
        page_table: none.clone(),
        page_table_stride: 0,
        out_slots: none,
    };
    let mut snapshot = [NO_SLOT; ROWS];
    snapshot[63] = 0;
    let rows = StateRows {
        read: subject.words(&[NO_SLOT, 3]),
        write: subject.words(&[2, 1]),
        snapshot: subject.words(&snapshot),
    };
    (batch, rows)
}

/// The rows that come out, and all states afterwards.
pub fn causal_conv<B: Backend>(
    subject: &Subject<B>,
    shape: &DeltaShape,
    dtype: DType,
) -> (Vec<f32>, Vec<f32>) {
    let channels = shape.channels();
    let row_stride = channels + BESIDE;
    let x = subject.activations(&rounded(dtype, values(2, ROWS * row_stride)));
    let states = states(subject, (subject.dtype(), dtype), &shape.conv_tensors());
    let (batch, state_rows) = step(subject);
    let out = subject.zeros(subject.dtype(), ROWS * channels);
    subject.backend.causal_conv(CausalConv {
        x: Strided {
            values: &x.slice(BESIDE..x.len()),
            row_stride,
        },
        weight: &subject.floats(&values(3, shape.taps * channels)),
        taps: shape.taps,
        batch: &batch,
        states: &states,
        state_rows: &state_rows,
        layer: 1,
        out: &out,
    });
    (subject.read(&out), subject.read(&states.region))
}

/// The rows that come out, and all states afterwards.
pub fn gdn_scan<B: Backend>(
    subject: &Subject<B>,
    shape: &DeltaShape,
    dtype: DType,
) -> (Vec<f32>, Vec<f32>) {
    let heads = shape.num_v_heads;
    let activations =
        |seed, width: usize| subject.activations(&rounded(dtype, values(seed, ROWS * width)));
    let (qkv, gates) = (
        activations(2, shape.channels()),
        activations(3, 2 * heads + BESIDE),
    );
    let row_stride = 2 * heads + BESIDE;
    let decay: Vec<f32> = values(4, heads).iter().map(|x| -(x + 1.0)).collect();
    let states = states(subject, (DType::F32, dtype), &shape.recurrent_tensors());
    let (batch, state_rows) = step(subject);
    let out = subject.zeros(subject.dtype(), ROWS * shape.v_width());
    subject.backend.gdn_scan(GdnScan {
        qkv: &qkv,
        num_k_heads: shape.num_k_heads,
        k_dim: shape.k_dim,
        a: Strided {
            values: &gates.slice(heads..gates.len()),
            row_stride,
        },
        b: Strided {
            values: &gates,
            row_stride,
        },
        decay: &subject.floats(&decay),
        dt_bias: &subject.floats(&values(5, heads)),
        batch: &batch,
        states: &states,
        state_rows: &state_rows,
        layer: 1,
        out: &out,
    });
    (subject.read(&out), subject.read(&states.region))
}

/// What both ops make of one sequence in steps of so many rows, each beside `mates` of one row; it reads and writes one
/// slot.
pub fn in_pieces<B: Backend>(
    subject: &Subject<B>,
    shape: &DeltaShape,
    dtype: DType,
    pieces: &[usize],
    mates: usize,
) -> Vec<f32> {
    let (channels, heads) = (shape.channels(), shape.num_v_heads);
    let conv_states = states(subject, (subject.dtype(), dtype), &shape.conv_tensors());
    let delta_states = states(subject, (DType::F32, dtype), &shape.recurrent_tensors());
    let weight = subject.floats(&values(3, shape.taps * channels));
    let decay: Vec<f32> = values(4, heads).iter().map(|x| -(x + 1.0)).collect();
    let (decay, dt_bias) = (subject.floats(&decay), subject.floats(&values(5, heads)));
    let (mut outs, mut done) = (Vec::new(), 0);
    for &piece in pieces {
        let rows = mates + piece;
        let (batch, state_rows) = piece_step(subject, piece, mates, done > 0);
        // A row's numbers go by its position; those of mates are beyond all.
        let of_rows = |seed: u64, width: usize| {
            let row = |row: usize| {
                let position = if row < mates {
                    1000 + row
                } else {
                    done + row - mates
                };
                rounded(dtype, values(seed + position as u64, width))
            };
            subject.activations(&(0..rows).flat_map(row).collect::<Vec<_>>())
        };
        let (x, gates) = (of_rows(10_000, channels), of_rows(20_000, 2 * heads));
        let convolved = subject.zeros(subject.dtype(), rows * channels);
        subject.backend.causal_conv(CausalConv {
            x: Strided {
                values: &x,
                row_stride: channels,
            },
            weight: &weight,
            taps: shape.taps,
            batch: &batch,
            states: &conv_states,
            state_rows: &state_rows,
            layer: 1,
            out: &convolved,
        });
        let out = subject.zeros(subject.dtype(), rows * shape.v_width());
        let gate = |values| Strided {
            values,
            row_stride: 2 * heads,
        };
        subject.backend.gdn_scan(GdnScan {
            qkv: &convolved,
            num_k_heads: shape.num_k_heads,
            k_dim: shape.k_dim,
            a: gate(&gates.slice(heads..gates.len())),
            b: gate(&gates),
            decay: &decay,
            dt_bias: &dt_bias,
            batch: &batch,
            states: &delta_states,
            state_rows: &state_rows,
            layer: 1,
            out: &out,
        });
        outs.extend_from_slice(&subject.read(&out)[mates * shape.v_width()..]);
        done += piece;
    }
    outs
}

/// The mates, which keep nothing, then `piece` rows of the sequence, whose state is in slot 4.
fn piece_step<B: Backend>(
    subject: &Subject<B>,
    piece: usize,
    mates: usize,
    goes_on: bool,
) -> (BatchView<B>, StateRows<B>) {
    let word = |len: usize| u32::try_from(len).expect("small");
    let none = subject.words(&[]);
    let mut ends: Vec<u32> = (0..=mates).map(word).collect();
    ends.push(word(mates + piece));
    let batch = BatchView {
        num_tokens: mates + piece,
        num_seqs: mates + 1,
        token_ids: none.clone(),
        positions: none.clone(),
        q_indptr: subject.words(&ends),
        kv_lens: none.clone(),
        page_table: none.clone(),
        page_table_stride: 0,
        out_slots: none,
    };
    let slots = |slot| {
        let mut slots = vec![NO_SLOT; mates];
        slots.push(slot);
        subject.words(&slots)
    };
    let rows = StateRows {
        read: slots(if goes_on { 4 } else { NO_SLOT }),
        write: slots(4),
        snapshot: subject.words(&vec![NO_SLOT; mates + piece]),
    };
    (batch, rows)
}

pub fn gated_norm<B: Backend>(subject: &Subject<B>, shape: &DeltaShape, dtype: DType) -> Vec<f32> {
    let row_stride = shape.v_width() + BESIDE;
    let x = subject.activations(&rounded(dtype, values(2, ROWS * shape.v_width())));
    let z = subject.activations(&rounded(dtype, values(3, ROWS * row_stride)));
    subject.backend.gated_norm(GatedNorm {
        x: &x,
        z: Strided {
            values: &z.slice(BESIDE..z.len()),
            row_stride,
        },
        weight: &subject.floats(&values(4, shape.v_dim)),
        eps: 1e-6,
        num_heads: shape.num_v_heads,
        rows: ROWS,
    });
    subject.read(&x)
}

/// Copies states 3 and 1 out and back to 0 and 3: all states after it.
pub fn there_and_back<B: Backend>(
    subject: &Subject<B>,
    shape: &DeltaShape,
    dtype: DType,
) -> Vec<f32> {
    let states = states(subject, (dtype, dtype), &shape.conv_tensors());
    let host = subject
        .backend
        .alloc_host("host", dtype, 2 * states.item_len())
        .expect("it fits");
    let copy = |slots: &[u32], direction| {
        subject.backend.copy_states(CopyStates {
            states: &states,
            slots: &subject.words(slots),
            num_slots: slots.len(),
            host: &host,
            direction,
        });
    };
    copy(&[3, 1], CopyDirection::PoolToHost);
    copy(&[0, 3], CopyDirection::HostToPool);
    subject.read(&states.region)
}
