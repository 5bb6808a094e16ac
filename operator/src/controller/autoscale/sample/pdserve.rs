//! Figures of pd-agent: series without labels, all of them from the start; and slots by state, where its model has any.

use super::{Counters, Gauges, SampleError, Series, StateSlots};

/// By GPU and reason; agents without a GPU have no such series.
const DEGRADED: &str = "pdserve_gpu_degraded";
const STATE_SLOTS: &str = "pdserve_state_slots";

pub(super) fn counters(said: &Series<'_>) -> Result<Counters, SampleError> {
    Ok(Counters {
        requests: said.value("pdserve_num_requests_total")?,
        prompts: said.value("pdserve_time_to_first_token_seconds_count")?,
        prompt_tokens: said.value("pdserve_prompt_tokens_total")?,
        cached_tokens: said.value("pdserve_cached_tokens_total")?,
        prefill_tokens: said.value("pdserve_prefill_tokens_total")?,
        busy_s: said.value("pdserve_step_time_seconds_sum")?,
        answers: said.value("pdserve_e2e_request_latency_seconds_count")?,
        answer_tokens: said.value("pdserve_generation_tokens_total")?,
        intervals: said.value("pdserve_inter_token_latency_seconds_count")?,
        interval_s: said.value("pdserve_inter_token_latency_seconds_sum")?,
        kv_bytes: said.value("pdserve_kv_transfer_bytes_total")?,
        kv_s: said.value("pdserve_kv_transfer_seconds_total")?,
    })
}

pub(super) fn gauges(said: &Series<'_>) -> Result<Gauges, SampleError> {
    Ok(Gauges {
        running: said.value("pdserve_num_running_reqs")?,
        queue_tokens: said.value("pdserve_num_queue_tokens")?,
        queue_age_s: said.value("pdserve_queue_oldest_age_seconds")?,
        used_tokens: said.value("pdserve_num_used_tokens")?,
        reserved_tokens: said.value("pdserve_prealloc_tokens")?,
        capacity_tokens: said.value("pdserve_max_total_num_tokens")?,
        slots: slots(said)?,
    })
}

fn slots(said: &Series<'_>) -> Result<Option<StateSlots>, SampleError> {
    let total = said.sum(STATE_SLOTS)?;
    let is_unused = |state: &str| matches!(state, "free" | "cached");
    let unused = said.sum_where(STATE_SLOTS, ("state", is_unused))?;
    let used = total - unused;
    Ok((total > 0.0).then_some(StateSlots { used, total }))
}

pub(super) fn is_degraded(said: &Series<'_>) -> bool {
    said.all(DEGRADED).any(|value| value == 1.0)
}
