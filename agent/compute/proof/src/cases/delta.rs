//! Ops of gated delta layers over sequences, of which some go on from states and leave snapshots.

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

/// What a step does with sequences and slots.
#[derive(Clone, Debug)]
pub struct DeltaStep {
    /// Where sequences begin, and the last one's end.
    ends: Vec<u32>,
    read: Vec<u32>,
    write: Vec<u32>,
    snapshot: Vec<u32>,
    num_slots: usize,
}

const NUM_SLOTS: usize = 5;
const NUM_LAYERS: usize = 2;
/// Rows of what has no sequences.
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

// === impl DeltaStep ===

impl DeltaStep {
    /// The second sequence reads slot 3 and writes 1, the first begins, and leaves a snapshot in slot 0.
    pub fn of_two() -> Self {
        let mut snapshot = vec![NO_SLOT; ROWS];
        snapshot[63] = 0;
        Self {
            ends: vec![0, 66, 69],
            read: vec![NO_SLOT, 3],
            write: vec![2, 1],
            snapshot,
            num_slots: NUM_SLOTS,
        }
    }

    /// Sequences of so many rows by turns begin, go on in their slot, and go on from another one, where their last
    /// snapshot then is. They leave snapshots after the rows `kept` of them.
    pub fn of(lens: &[usize], kept: &[usize]) -> Self {
        let word = |len: usize| u32::try_from(len).expect("small");
        let num_seqs = lens.len();
        let mut step = Self {
            ends: vec![0],
            read: Vec::new(),
            write: (0..num_seqs).map(word).collect(),
            snapshot: Vec::new(),
            num_slots: 2 * num_seqs,
        };
        for (seq, &len) in lens.iter().enumerate() {
            let other = word(num_seqs + seq);
            step.read.push([NO_SLOT, word(seq), other][seq % 3]);
            let begin = step.snapshot.len();
            step.snapshot.resize(begin + len, NO_SLOT);
            let mut free = (seq % 3 != 1).then_some(other);
            for &row in kept.iter().filter(|row| **row < len) {
                let slot = free.take().unwrap_or_else(|| {
                    step.num_slots += 1;
                    word(step.num_slots - 1)
                });
                step.snapshot[begin + row] = slot;
            }
            step.ends.push(word(begin + len));
        }
        step
    }

    fn rows(&self) -> usize {
        self.snapshot.len()
    }

    fn on<B: Backend>(&self, subject: &Subject<B>) -> (BatchView<B>, StateRows<B>) {
        let none = subject.words(&[]);
        let batch = BatchView {
            num_tokens: self.rows(),
            num_seqs: self.read.len(),
            token_ids: none.clone(),
            positions: none.clone(),
            q_indptr: subject.words(&self.ends),
            kv_lens: none.clone(),
            page_table: none.clone(),
            page_table_stride: 0,
            out_slots: none,
        };
        let rows = StateRows {
            read: subject.words(&self.read),
            write: subject.words(&self.write),
            snapshot: subject.words(&self.snapshot),
        };
        (batch, rows)
    }
}

/// Of `dtype`, with values that another holds, too.
fn states<B: Backend>(
    subject: &Subject<B>,
    (dtype, rounding): (DType, DType),
    tensors: &[StateTensorView],
    num_slots: usize,
) -> StateView<B> {
    let mut states = StateView {
        region: subject.zeros(dtype, 0),
        num_slots,
        num_layers: NUM_LAYERS,
        tensors: tensors.into(),
    };
    let len = num_slots * states.item_len();
    states.region = subject.zeros(dtype, len);
    subject.write(&states.region, &rounded(rounding, values(1, len)));
    states
}

/// The rows that come out, and all states afterwards.
pub fn causal_conv<B: Backend>(
    subject: &Subject<B>,
    shape: &DeltaShape,
    dtype: DType,
    step: &DeltaStep,
) -> (Vec<f32>, Vec<f32>) {
    let channels = shape.channels();
    let row_stride = channels + BESIDE;
    let x = subject.activations(&rounded(dtype, values(2, step.rows() * row_stride)));
    let states = states(
        subject,
        (subject.dtype(), dtype),
        &shape.conv_tensors(),
        step.num_slots,
    );
    let (batch, state_rows) = step.on(subject);
    let out = subject.zeros(subject.dtype(), step.rows() * channels);
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
    step: &DeltaStep,
) -> (Vec<f32>, Vec<f32>) {
    let heads = shape.num_v_heads;
    let activations = |seed, width: usize| {
        subject.activations(&rounded(dtype, values(seed, step.rows() * width)))
    };
    let (qkv, gates) = (
        activations(2, shape.channels()),
        activations(3, 2 * heads + BESIDE),
    );
    let row_stride = 2 * heads + BESIDE;
    let decay: Vec<f32> = values(4, heads).iter().map(|x| -(x + 1.0)).collect();
    let states = states(
        subject,
        (DType::F32, dtype),
        &shape.recurrent_tensors(),
        step.num_slots,
    );
    let (batch, state_rows) = step.on(subject);
    let out = subject.zeros(subject.dtype(), step.rows() * shape.v_width());
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
    let conv_states = states(
        subject,
        (subject.dtype(), dtype),
        &shape.conv_tensors(),
        NUM_SLOTS,
    );
    let delta_states = states(
        subject,
        (DType::F32, dtype),
        &shape.recurrent_tensors(),
        NUM_SLOTS,
    );
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
    let states = states(subject, (dtype, dtype), &shape.conv_tensors(), NUM_SLOTS);
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
