//! Sequences taken through an op with states, in any chunks and batches: what the tests of such ops
//! stand on.

#![allow(clippy::cast_possible_truncation, reason = "test values are small")]

use crate::cpu::backend::tests::{floats, isas, mk_backend, read_floats, words};
use crate::cpu::{CpuBackend, Isa};
use crate::kv::NO_SLOT;
use crate::ops::BatchView;
use crate::states::{StateRows, StateTensorView, StateView};
use proptest::prelude::*;

/// The layer that ops work on, among three.
const LAYER: usize = 1;
const NUM_LAYERS: usize = 3;
/// For the states of a sequence, and for one snapshot of it.
const SLOTS_PER_SEQ: usize = 3;

/// An op with states, and what it works on.
pub(in crate::cpu) trait StatefulOp {
    fn tensors(&self) -> Vec<StateTensorView>;

    /// `[rows][…]`, of the rows of `step`.
    fn run(&self, backend: &CpuBackend, states: &StateView<CpuBackend>, step: &Step) -> Vec<f32>;
}

/// One step.
pub(in crate::cpu) struct Step {
    /// The sequence and position of each row.
    pub(in crate::cpu) rows: Vec<(usize, usize)>,
    pub(in crate::cpu) batch: BatchView<CpuBackend>,
    pub(in crate::cpu) state_rows: StateRows<CpuBackend>,
    pub(in crate::cpu) layer: usize,
}

/// One way to go through sequences.
#[derive(Clone, Debug)]
pub(in crate::cpu) struct Walk {
    pub(in crate::cpu) isa: Isa,
    pub(in crate::cpu) threads: usize,
    /// Where the chunks of each sequence end, up to its length. The n-th chunks make the n-th step.
    pub(in crate::cpu) ends: Vec<Vec<usize>>,
    /// A step writes another slot than it reads.
    pub(in crate::cpu) moves: bool,
    /// After this many tokens of each sequence, its state is kept; 0: never.
    pub(in crate::cpu) snapshots: Vec<usize>,
}

/// The results by sequence; floats as bits.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cpu) struct Walked {
    pub(in crate::cpu) outs: Vec<Vec<u32>>,
    /// The layer's elements after the last token.
    pub(in crate::cpu) states: Vec<Vec<u32>>,
    pub(in crate::cpu) snapshots: Vec<Vec<u32>>,
}

// === impl Walk ===

impl Walk {
    /// All at once, plainly.
    pub(in crate::cpu) fn plain(lens: &[usize]) -> Self {
        Self {
            isa: Isa::Scalar,
            threads: 1,
            ends: lens.iter().map(|len| vec![*len]).collect(),
            moves: false,
            snapshots: vec![0; lens.len()],
        }
    }

    pub(in crate::cpu) fn go(&self, op: &impl StatefulOp) -> Walked {
        let backend = mk_backend(self.threads, self.isa);
        let states = self.states(&backend, op.tensors());
        let mut outs = vec![Vec::new(); self.ends.len()];
        let num_steps = self.ends.iter().map(Vec::len).max().unwrap();
        for index in 0..num_steps {
            let step = self.step(&backend, index);
            let out = op.run(&backend, &states, &step);
            let width = out.len() / step.rows.len();
            for ((seq, _), row) in step.rows.iter().zip(out.chunks(width)) {
                outs[*seq].extend(row.iter().map(|x| x.to_bits()));
            }
        }
        let items = read_floats(&backend, &states.region);
        let item = |slot: usize| &items[slot * states.item_len()..][..states.item_len()];
        let layer_of = |slot: usize| -> Vec<u32> {
            let heads = states
                .heads(LAYER)
                .flat_map(|head| item(slot)[head].to_vec());
            heads.map(f32::to_bits).collect()
        };
        for layer in [0, 2] {
            let heads = (0..states.num_slots).flat_map(|slot| {
                let heads = states.heads(layer);
                heads.flat_map(move |head| item(slot)[head].to_vec())
            });
            assert!(heads.into_iter().all(f32::is_nan), "layer {layer} is left");
        }
        let seqs = 0..self.ends.len();
        let last = |seq| self.slots(seq, self.ends[seq].len() - 1)[1];
        let kept = |seq| match self.snapshots[seq] {
            0 => Vec::new(),
            _ => layer_of(self.slots(seq, 0)[2]),
        };
        Walked {
            outs,
            states: seqs.clone().map(|seq| layer_of(last(seq))).collect(),
            snapshots: seqs.map(kept).collect(),
        }
    }

    /// Filled with NaN, since no state may be read before it is written.
    fn states(&self, backend: &CpuBackend, tensors: Vec<StateTensorView>) -> StateView<CpuBackend> {
        let mut states = StateView {
            region: floats(backend, &[]),
            num_slots: SLOTS_PER_SEQ * self.ends.len(),
            num_layers: NUM_LAYERS,
            tensors: tensors.into(),
        };
        states.region = floats(
            backend,
            &vec![f32::NAN; states.num_slots * states.item_len()],
        );
        states
    }

    /// A sequence's slots at a step: read, written, and for a snapshot.
    fn slots(&self, seq: usize, step: usize) -> [usize; 3] {
        // Backwards, so that no test passes because slots happen to be in order.
        let slot = |nth: usize| SLOTS_PER_SEQ * (self.ends.len() - seq) - 1 - nth;
        let turn = if self.moves { step % 2 } else { 0 };
        let read = if self.moves { 1 - turn } else { 0 };
        [slot(read), slot(turn), slot(2)]
    }

    fn step(&self, backend: &CpuBackend, index: usize) -> Step {
        let (mut rows, mut q_indptr) = (Vec::new(), vec![0]);
        let (mut read, mut write, mut snapshot) = (Vec::new(), Vec::new(), Vec::new());
        for (seq, ends) in self.ends.iter().enumerate() {
            let Some(end) = ends.get(index) else { continue };
            let start = if index == 0 { 0 } else { ends[index - 1] };
            let [from, to, kept] = self.slots(seq, index).map(|slot| slot as u32);
            for position in start..*end {
                rows.push((seq, position));
                let is_kept = position + 1 == self.snapshots[seq];
                snapshot.push(if is_kept { kept } else { NO_SLOT });
            }
            q_indptr.push(rows.len() as u32);
            read.push(if start == 0 { NO_SLOT } else { from });
            write.push(to);
        }
        Step {
            batch: mk_batch(backend, &q_indptr),
            state_rows: StateRows {
                read: words(backend, &read),
                write: words(backend, &write),
                snapshot: words(backend, &snapshot),
            },
            rows,
            layer: LAYER,
        }
    }
}

/// A batch without pages.
pub(in crate::cpu) fn mk_batch(backend: &CpuBackend, q_indptr: &[u32]) -> BatchView<CpuBackend> {
    let none = words(backend, &[]);
    BatchView {
        num_tokens: q_indptr[q_indptr.len() - 1] as usize,
        num_seqs: q_indptr.len() - 1,
        token_ids: none.clone(),
        positions: none.clone(),
        q_indptr: words(backend, q_indptr),
        kv_lens: none.clone(),
        page_table: none.clone(),
        page_table_stride: 0,
        out_slots: none,
    }
}

/// Any way through sequences of these lengths, with a snapshot of each.
fn walks(lens: Vec<usize>) -> impl Strategy<Value = Walk> {
    let cuts = |len: usize| {
        let cuts = prop::collection::vec(1..=len, 0..4);
        cuts.prop_map(move |mut ends| {
            ends.push(len);
            ends.sort_unstable();
            ends.dedup();
            ends
        })
    };
    let ends: Vec<_> = lens.iter().map(|len| cuts(*len)).collect();
    let snapshots: Vec<_> = lens.iter().map(|len| 1..=*len).collect();
    let isas = prop::sample::select(isas().collect::<Vec<_>>());
    (isas, 1usize..4, ends, any::<bool>(), snapshots).prop_map(
        |(isa, threads, ends, moves, snapshots)| Walk {
            isa,
            threads,
            ends,
            moves,
            snapshots,
        },
    )
}

pub(in crate::cpu) fn lens_and_walk() -> impl Strategy<Value = (Vec<usize>, Walk)> {
    let lens = prop::collection::vec(1usize..20, 1..4);
    lens.prop_flat_map(|lens| (Just(lens.clone()), walks(lens)))
}

/// Nothing but the tokens of a sequence before a place counts for its bits there.
///
/// # Panics
/// When something else does.
pub(in crate::cpu) fn assert_same_bits(op: &impl StatefulOp, lens: &[usize], walk: &Walk) {
    let plain = Walk::plain(lens).go(op);
    let walked = walk.go(op);
    assert_eq!(walked.outs, plain.outs);
    assert_eq!(walked.states, plain.states);
    for (seq, snapshot) in walked.snapshots.iter().enumerate() {
        let mut cut = vec![1; lens.len()];
        cut[seq] = walk.snapshots[seq];
        let cut = Walk::plain(&cut).go(op);
        assert_eq!(*snapshot, cut.states[seq], "a snapshot of sequence {seq}");
    }
}
