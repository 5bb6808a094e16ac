//! `DraftLayer`: drafts of the model's own draft layer, multi-token prediction: SGLang's `EAGLE` and `NEXTN`.
//!
//! Each step of the model makes the layer's entries of its rows (`model/decoder/draft.rs`), which lie in the same pages
//! as the model's own layers' KV and share its fate: cached, sent, copied to host memory, given back. What the layer
//! makes of a request's last entry is on the device until the next step, and that of a received prompt comes with its
//! first token. From there drafts are drawn one after another as those of a draft model are, as the target draws; their
//! entries are overwritten by the step that verifies them (docs/decisions/0090).

use super::last_entry::LastEntry;
use super::model::Wanted;
use crate::kvcache::req_to_token::ReqToTokenPool;
use crate::ranks::Ranks;
use crate::step::{ChainStepBuilder, DraftState};
use pd_compute::{ComputeError, NO_TOKEN};

#[derive(Debug)]
pub(crate) struct DraftLayer {
    builder: ChainStepBuilder,
    /// Outputs of a step at most: states that are given lie behind them.
    max_outputs: usize,
    /// Bytes of a state.
    state_bytes: usize,
}

// === impl DraftLayer ===

impl DraftLayer {
    /// Of a rank whose steps have up to `max_outputs` outputs, and whose activations of a row take `state_bytes`.
    pub(crate) fn new(max_outputs: usize, state_bytes: usize) -> Self {
        Self {
            builder: ChainStepBuilder::default(),
            max_outputs,
            state_bytes,
        }
    }

    /// Whether these bytes can be a state that prefill sent.
    pub(crate) fn is_state(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.state_bytes
    }

    /// Drafts for each of `wanted`, one list each, drawn by `ranks`, which have no step in flight.
    ///
    /// # Errors
    /// When the device faulted.
    pub(crate) fn draft(
        &mut self,
        ranks: &mut dyn Ranks,
        wanted: &[Wanted<'_>],
        req_to_token: &ReqToTokenPool,
    ) -> Result<Vec<Vec<u32>>, ComputeError> {
        let mut drafts = vec![Vec::new(); wanted.len()];
        let mut drawing = Vec::new();
        for (index, wanted) in wanted.iter().enumerate() {
            if let Some(entry) = wanted.entry.filter(|_| wanted.max > 0) {
                let outputs = self.max_outputs;
                self.builder
                    .push_first(wanted.req, state_of(entry), outputs);
                drawing.push(index);
            }
        }
        while let Some(plan) = self.builder.finish() {
            ranks.launch(&plan)?;
            let drawn = ranks.wait()?.tokens;
            let mut next = Vec::new();
            for (row, (index, &token)) in drawing.into_iter().zip(&drawn).enumerate() {
                if token == NO_TOKEN {
                    continue;
                }
                drafts[index].push(token);
                let Wanted { req, idx, max, .. } = &wanted[index];
                if drafts[index].len() < *max {
                    let place = (*idx, req_to_token);
                    self.builder.push_next(req, &drafts[index], row, place);
                    next.push(index);
                }
            }
            drawing = next;
        }
        Ok(drafts)
    }
}

fn state_of(entry: &LastEntry) -> DraftState<'_> {
    match entry {
        LastEntry::Output(carried) => DraftState::Output(carried.output),
        LastEntry::Received(bytes) => DraftState::Given(bytes),
    }
}
