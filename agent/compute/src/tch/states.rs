//! States as tensors, and what a step does with them.

use super::handle::TchBackend;
use super::memory::int;
use crate::ops::BatchView;
use crate::states::{SeqStates, StateRows, StateView, StepWords};
use tch::{Kind, Tensor};

/// # Errors
/// Says which rows or slots are not what [`StateRows`] says.
pub(super) fn seqs_of(
    batch: &BatchView<TchBackend>,
    rows: &StateRows<TchBackend>,
    num_slots: usize,
) -> Result<Vec<SeqStates>, String> {
    let (tokens, seqs) = (batch.num_tokens, batch.num_seqs);
    let words = StepWords {
        q_indptr: &batch.q_indptr.words("q_indptr", seqs + 1)?,
        read: &rows.read.words("state slots to read", seqs)?,
        write: &rows.write.words("state slots to write", seqs)?,
        snapshot: &rows.snapshot.words("state snapshots", tokens)?,
    };
    SeqStates::of_step(words, num_slots)
}

/// The layer's heads in a slot, `[rows][elements / rows]` each, sharing the region's memory.
pub(super) fn heads_of(
    states: &StateView<TchBackend>,
    layer: usize,
    slot: usize,
    rows: usize,
) -> Vec<Tensor> {
    let item = slot * states.item_len();
    let head = |head: std::ops::Range<usize>| {
        let width = head.len() / rows;
        let shape = [rows, width];
        let first = item + head.start;
        states.region.strided("states", first, shape, [width, 1])
    };
    states.heads(layer).map(head).collect()
}

/// A step's rows that belong to a sequence.
pub(super) fn rows_of(x: &Tensor, seq: &SeqStates) -> Tensor {
    x.narrow(0, int(seq.rows.start), int(seq.rows.len()))
}

/// In f32, a copy.
pub(super) fn floats(heads: &[Tensor]) -> Vec<Tensor> {
    let float = |head: &Tensor| head.to_kind(Kind::Float).copy();
    heads.iter().map(float).collect()
}
