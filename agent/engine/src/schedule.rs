//! Which requests the next step computes: admission (`prefill`, by the budget of `prefill_adder`), the running batch
//! (`running`), which of them wait for a prompt that another computes (`computing`), their drafts (`drafts`), and retraction when memory runs out (`retract`); and where recurrent states
//! are kept for later requests (`snapshots`). The modes use these parts.

pub(crate) mod computing;
mod drafts;
pub(crate) mod new_token_ratio;
pub(crate) mod prefill;
pub(crate) mod prefill_adder;
pub(crate) mod retract;
pub(crate) mod running;
pub(crate) mod snapshots;

/// SGLang's `CLIP_MAX_NEW_TOKENS`: estimates count at most this much of an answer, since few get
/// longer and reserving for all of them would leave the pool idle. Source:
/// docs/sglang-protocol.md#scheduling.
pub(crate) const CLIP_MAX_NEW_TOKENS: usize = 4096;

/// Limits of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScheduleLimits {
    pub(crate) max_running_requests: usize,
    /// `None`: prompts are computed whole.
    pub(crate) chunked_prefill_size: Option<usize>,
    pub(crate) max_prefill_tokens: usize,
    /// Logit rows in addition to one per request, for prompt logprobs.
    pub(crate) prompt_logprob_rows: usize,
    /// Rows, over all requests, that compute drafts.
    pub(crate) draft_rows: usize,
}
