//! Figures of vLLM: series by engine and model. It counts a request when it ends, says of what waits how many requests it is,
//! and of its memory what share is used.
//!
//! Source: vLLM 0.32, `v1/metrics/loggers.py` and `distributed/kv_transfer/kv_connector/v1/nixl/stats.py`.

use super::{Counters, Gauges, SampleError, Series};

/// What an engine's memory is, in labels; there before it serves.
pub(super) const CONFIG: &str = "vllm:cache_config_info";

pub(super) fn counters(said: &Series<'_>) -> Result<Counters, SampleError> {
    let engines = said.count(CONFIG).max(1.0);
    Ok(Counters {
        requests: said.sum("vllm:request_success_total")?,
        prompts: said.sum("vllm:time_to_first_token_seconds_count")?,
        prompt_tokens: said.sum("vllm:prompt_tokens_total")?,
        cached_tokens: said.sum("vllm:prompt_tokens_cached_total")?,
        prefill_tokens: said.sum_where(
            "vllm:prompt_tokens_by_source_total",
            ("source", |source| source == "local_compute"),
        )?,
        // Requests' own times, which overlap where steps compute several at once.
        busy_s: said.sum("vllm:request_prefill_time_seconds_sum")? / engines,
        answers: said.sum("vllm:e2e_request_latency_seconds_count")?,
        answer_tokens: said.sum("vllm:generation_tokens_total")?,
        intervals: said.sum("vllm:inter_token_latency_seconds_count")?,
        interval_s: said.sum("vllm:inter_token_latency_seconds_sum")?,
        kv_bytes: said.sum("vllm:nixl_bytes_transferred_sum")?,
        kv_s: said.sum("vllm:nixl_xfer_time_seconds_sum")?,
    })
}

pub(super) fn gauges(said: &Series<'_>, counters: &Counters) -> Result<Gauges, SampleError> {
    let prompt = counters.prompt_tokens / counters.prompts.max(1.0);
    let fetching = said.sum_where(
        "vllm:num_requests_kv_fetch_by_stage",
        ("stage", |stage| stage != "waiting_to_start"),
    )?;
    // Those that fetch their KV count as waiting, too.
    let waiting = (said.sum("vllm:num_requests_waiting")? - fetching).max(0.0);
    let capacity_tokens = capacity_tokens(said)?;
    let engines = said.count("vllm:kv_cache_usage_perc").max(1.0);
    let used = said.sum("vllm:kv_cache_usage_perc")? / engines;
    Ok(Gauges {
        running: said.sum("vllm:num_requests_running")?,
        queue_tokens: waiting * prompt,
        queue_age_s: 0.0,
        used_tokens: used * capacity_tokens,
        reserved_tokens: fetching * prompt,
        capacity_tokens,
        slots: None,
    })
}

/// Of all engines. Older versions say blocks only.
fn capacity_tokens(said: &Series<'_>) -> Result<f64, SampleError> {
    let number = |label: Option<std::borrow::Cow<'_, str>>| label?.parse::<f64>().ok();
    let of_engine = |labels: &pd_protocol::exposition::Sample<'_>| {
        let blocks =
            || Some(number(labels.label("num_gpu_blocks"))? * number(labels.label("block_size"))?);
        number(labels.label("kv_cache_size_tokens")).or_else(blocks)
    };
    let all: Option<Vec<f64>> = said.samples(CONFIG).map(of_engine).collect();
    let tokens = all
        .ok_or(SampleError::Missing("kv_cache_size_tokens"))?
        .iter()
        .sum();
    super::checked(CONFIG, tokens)
}
