//! Which requests the next step computes. Admission (`prefill`, by the budget of
//! `prefill_adder`), the running batch (`decode`), and what happens when memory runs out
//! (`retract`). `unified` is the schedule of an engine that does both.

pub(crate) mod decode;
pub(crate) mod policy;
pub(crate) mod prefill;
pub(crate) mod prefill_adder;
pub(crate) mod retract;
pub(crate) mod unified;

/// SGLang's `CLIP_MAX_NEW_TOKENS`: in estimates an answer counts for no more, since few get longer
/// and reserving for all of them would leave the pool idle. Source: docs/sglang-protocol.md#scheduling.
pub(crate) const CLIP_MAX_NEW_TOKENS: usize = 4096;

/// Bounds of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScheduleLimits {
    pub(crate) max_running_requests: usize,
    /// `None`: prompts are computed whole.
    pub(crate) chunked_prefill_size: Option<usize>,
    pub(crate) max_prefill_tokens: usize,
    /// Logit rows beside one per request: what prompt logprobs may take.
    pub(crate) prompt_logprob_rows: usize,
}
