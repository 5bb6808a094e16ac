//! What is known of a token before it is: the step that draws it, and where.

/// The number of a step; later steps have higher ones, by 1 each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StepId(pub(crate) u64);

/// A token that is known to the device only, as an output of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) step: StepId,
    pub(crate) output: usize,
}
