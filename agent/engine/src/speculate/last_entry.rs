//! `LastEntry`: where drafts of the model's own layer begin.

use crate::step::carried::{Carried, StepId};

/// What the draft layer made of a request's last entry. One that is not there any more is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LastEntry {
    /// It is on the device, among the outputs of a step, until the next step.
    Output(Carried),
    /// Computed by prefill: a row of activations.
    Received(Vec<u8>),
}

// === impl LastEntry ===

impl LastEntry {
    /// Whether drafts can follow it behind `last`, the last step.
    pub(crate) fn is_there(&self, last: StepId) -> bool {
        match self {
            Self::Output(carried) => carried.step == last,
            Self::Received(_) => true,
        }
    }
}
