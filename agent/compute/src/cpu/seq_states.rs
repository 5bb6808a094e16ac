//! What a step does with the states of its sequences, as a command reads it.

use super::handle::CpuBackend;
use super::memory::Src;
use crate::ops::BatchView;
use crate::states::{SeqStates, StateRows, StepWords};

pub(super) struct StepStates {
    q_indptr: Src<u32>,
    read: Src<u32>,
    write: Src<u32>,
    snapshot: Src<u32>,
    num_slots: usize,
}

// === impl StepStates ===

impl StepStates {
    pub(super) fn new(
        batch: &BatchView<CpuBackend>,
        rows: &StateRows<CpuBackend>,
        num_slots: usize,
    ) -> Self {
        let (tokens, seqs) = (batch.num_tokens, batch.num_seqs);
        Self {
            q_indptr: batch.q_indptr.src("q_indptr", seqs + 1),
            read: rows.read.src("state slots to read", seqs),
            write: rows.write.src("state slots to write", seqs),
            snapshot: rows.snapshot.src("state snapshots", tokens),
            num_slots,
        }
    }

    /// # Panics
    /// When rows or slots are not what [`StateRows`] says, which faults the queue.
    ///
    /// # Safety
    /// On the queue.
    pub(super) unsafe fn seqs(&self) -> Vec<SeqStates> {
        // SAFETY: the caller's; indices are not written by ops on states.
        let words = unsafe {
            StepWords {
                q_indptr: self.q_indptr.slice(),
                read: self.read.slice(),
                write: self.write.slice(),
                snapshot: self.snapshot.slice(),
            }
        };
        SeqStates::of_step(words, self.num_slots).unwrap_or_else(|wrong| panic!("{wrong}"))
    }
}

#[cfg(test)]
pub(super) mod tests;
