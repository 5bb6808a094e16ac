//! What a policy sees of a worker.

/// What this router has in flight on one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Load {
    /// Prefill: prompt tokens. Decode: prompt tokens and those it may still produce.
    pub(crate) tokens: u64,
    pub(crate) requests: u64,
}
