//! Figures of SGLang, 0.5.12 or later: series by data-parallel rank and more, most of which begin with their first request. It
//! counts a request when it ends, and says of what waits how many requests it is: their tokens are taken to be as many as those
//! of earlier ones.
//!
//! Source: SGLang 0.5.23, `srt/observability/metrics_collector.py`.

use super::{Counters, Gauges, SampleError, Series};

/// A rank's slots; set before it serves.
pub(super) const CAPACITY: &str = "sglang:max_total_num_tokens";
/// Time in each part of the scheduler's loop, of which most pass without work, too.
const STAGES: &str = "sglang:scheduler_stage_seconds_total";
const WORK: [&str; 2] = ["run_batch", "process_batch_result"];
const MIB: f64 = 1_048_576.0;

pub(super) fn counters(said: &Series<'_>) -> Result<Counters, SampleError> {
    Ok(Counters {
        requests: said.sum("sglang:num_requests_total")?,
        // Prefill counts no first tokens.
        prompts: said.sum("sglang:num_requests_total")?,
        prompt_tokens: said.sum("sglang:prompt_tokens_total")?,
        cached_tokens: said.sum("sglang:cached_tokens_total")?,
        prefill_tokens: said.sum_where(
            "sglang:realtime_tokens_total",
            ("mode", |mode| mode == "prefill_compute"),
        )?,
        busy_s: busy_s(said)?,
        answers: said.sum("sglang:e2e_request_latency_seconds_count")?,
        answer_tokens: said.sum("sglang:generation_tokens_total")?,
        intervals: said.sum("sglang:inter_token_latency_seconds_count")?,
        interval_s: said.sum("sglang:inter_token_latency_seconds_sum")?,
        kv_bytes: said.sum("sglang:kv_transfer_total_mb_sum")? * MIB,
        // Its latency begins when a prompt is computed and counts every wait until decode has all: no link's speed
        // follows from it.
        kv_s: 0.0,
    })
}

/// Of a rank, the mean: all of them make one replica's step.
fn busy_s(said: &Series<'_>) -> Result<f64, SampleError> {
    let ranks = said.count(CAPACITY).max(1.0);
    let busy_s = if said.count(STAGES) > 0.0 {
        said.sum_where(STAGES, ("category", |stage| WORK.contains(&stage)))?
    } else {
        said.sum("sglang:forward_execution_seconds_total")?
    };
    Ok(busy_s / ranks)
}

pub(super) fn gauges(said: &Series<'_>, counters: &Counters) -> Result<Gauges, SampleError> {
    let prompt = counters.prompt_tokens / counters.requests.max(1.0);
    // On prefill those that compute next. What waits there for decode is not prefill's to mend.
    let waiting = said.sum("sglang:num_queue_reqs")?;
    // On decode those that wait for memory, and those with memory whose KV has not come yet.
    let unplaced = said.sum("sglang:num_decode_prealloc_queue_reqs")?;
    let reserved = said.sum("sglang:num_decode_transfer_queue_reqs")?;
    Ok(Gauges {
        running: said.sum("sglang:num_running_reqs")?,
        queue_tokens: (waiting + unplaced) * prompt,
        queue_age_s: 0.0,
        used_tokens: said.sum("sglang:num_used_tokens")?,
        reserved_tokens: reserved * prompt,
        capacity_tokens: said.sum(CAPACITY)?,
        slots: None,
    })
}
