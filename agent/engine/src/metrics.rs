//! Counters, gauges and histograms of one engine, in Prometheus' text format. Names are SGLang's
//! (docs/sglang-protocol.md#metrics) with the prefix `pdserve_`. `pd_kv_transfer` adds the series
//! of peers, NICs and rails to the same registry.

mod grammars;

use prometheus::core::Collector;
use prometheus::{Counter, Gauge, Histogram, IntCounter, IntGauge, IntGaugeVec};
use prometheus::{Encoder, HistogramOpts, Opts, Registry, TextEncoder};
use std::time::{Duration, Instant};

pub(crate) use grammars::GrammarMetrics;

/// The registry belongs to the engine, so that several engines of a process do not mix. Clones
/// share it.
#[derive(Clone, Debug)]
pub struct EngineMetrics {
    registry: Registry,
    pub(crate) gauges: Gauges,
    pub(crate) counters: Counters,
    pub(crate) histograms: Histograms,
    pub(crate) speculation: SpeculationMetrics,
    pub(crate) grammars: GrammarMetrics,
}

/// The present state; written once per step of the event loop.
#[derive(Clone, Debug)]
pub(crate) struct Gauges {
    pub(crate) num_running_reqs: IntGauge,
    pub(crate) num_queue_reqs: IntGauge,
    /// Tokens that wait for a step, or on decode for memory, also while prefill is looked for.
    pub(crate) num_queue_tokens: IntGauge,
    pub(crate) queue_oldest_age: Gauge,
    pub(crate) num_retracted_reqs: IntGauge,
    pub(crate) bootstrap_queue_size: IntGauge,
    pub(crate) num_prefill_inflight_queue_reqs: IntGauge,
    pub(crate) num_decode_prealloc_queue_reqs: IntGauge,
    pub(crate) transfer_queue_size: IntGauge,
    pub(crate) num_decode_transfer_queue_reqs: IntGauge,
    pub(crate) prealloc_tokens: IntGauge,
    pub(crate) num_used_tokens: IntGauge,
    pub(crate) max_total_num_tokens: IntGauge,
    pub(crate) token_usage: Gauge,
    pub(crate) new_token_ratio: Gauge,
    pub(crate) cache_hit_rate: Gauge,
    pub(crate) gen_throughput: Gauge,
    /// By `state`: free, cached, locked, held, quarantined; they add up to the pool.
    pub(crate) kv_pages: IntGaugeVec,
    /// By the same states; none of a model without a window space.
    pub(crate) window_pages: IntGaugeVec,
    /// By the same states; none of a model without recurrent state.
    pub(crate) state_slots: IntGaugeVec,
    /// Of all layers; 0 for a model without recurrent state.
    pub(crate) state_slot_bytes: IntGauge,
    pub(crate) req_pool_rows_used: IntGauge,
    pub(crate) metadata_rows_used: IntGauge,
    pub(crate) metadata_rows_total: IntGauge,
    pub(crate) rooms_in_flight: IntGauge,
    pub(crate) steps_in_flight: IntGauge,
}

#[derive(Clone, Debug)]
pub(crate) struct Counters {
    pub(crate) requests: IntCounter,
    pub(crate) aborted_requests: IntCounter,
    pub(crate) retractions: IntCounter,
    pub(crate) bootstrap_failed_reqs: IntCounter,
    pub(crate) transfer_failed_reqs: IntCounter,
    pub(crate) prompt_tokens: IntCounter,
    pub(crate) prefill_tokens: IntCounter,
    pub(crate) cached_tokens: IntCounter,
    pub(crate) decode_cached_tokens: IntCounter,
    pub(crate) generation_tokens: IntCounter,
    pub(crate) kv_transfer_bytes: IntCounter,
    pub(crate) kv_transfer_seconds: Counter,
    pub(crate) steps: IntCounter,
    pub(crate) overlapped_steps: IntCounter,
    pub(crate) graph_replays: IntCounter,
    pub(crate) kv_saturations: IntCounter,
}

#[derive(Clone, Debug)]
pub(crate) struct Histograms {
    pub(crate) time_to_first_token: Histogram,
    pub(crate) inter_token_latency: Histogram,
    pub(crate) e2e_request_latency: Histogram,
    /// From arrival to the first step.
    pub(crate) queue_time: Histogram,
    /// From arrival until the other side is known (prefill: until decode has sent its pages).
    pub(crate) bootstrap_time: Histogram,
    /// From the last chunk (prefill) or the offer of pages (decode) until the transfer's end.
    pub(crate) transfer_time: Histogram,
    pub(crate) step_time: Histogram,
}

/// Of an engine that speculates; 0 of others.
#[derive(Clone, Debug)]
pub(crate) struct SpeculationMetrics {
    pub(crate) accept_length: Gauge,
    pub(crate) accept_rate: Gauge,
    pub(crate) verify: IntCounter,
    pub(crate) draft_tokens: IntCounter,
    pub(crate) accepted_tokens: IntCounter,
}

/// Answer tokens per second, over a window that ends now.
#[derive(Debug)]
pub(crate) struct Throughput {
    since: Instant,
    tokens: u64,
}

/// 0.5 ms doubling to 262 s.
const BUCKETS_FIRST_S: f64 = 0.000_5;
const BUCKETS: usize = 20;
const THROUGHPUT_WINDOW: Duration = Duration::from_secs(2);

// === impl EngineMetrics ===

impl EngineMetrics {
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        Self {
            gauges: Gauges::new(&registry),
            counters: Counters::new(&registry),
            histograms: Histograms::new(&registry),
            speculation: SpeculationMetrics::new(&registry),
            grammars: GrammarMetrics::new(&registry),
            registry,
        }
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Prometheus text, version 0.0.4.
    pub fn encode(&self) -> String {
        let mut text = Vec::new();
        TextEncoder::new()
            .encode(&self.registry.gather(), &mut text)
            .expect("registered metrics can be written to memory");
        String::from_utf8(text).expect("the text format is UTF-8")
    }
}

// === impl Gauges ===

impl Gauges {
    fn new(registry: &Registry) -> Self {
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::with_opts(opts(name, help)).expect("a valid name");
            register(registry, gauge)
        };
        let ratio = |name: &str, help: &str| {
            let gauge = Gauge::with_opts(opts(name, help)).expect("a valid name");
            register(registry, gauge)
        };
        let by_state = |name: &str, help: &str| {
            let gauges = IntGaugeVec::new(opts(name, help), &["state"]).expect("a valid name");
            register(registry, gauges)
        };
        Self {
            num_running_reqs: gauge("num_running_reqs", "Requests in the running batch"),
            num_queue_reqs: gauge("num_queue_reqs", "Requests that wait for a step"),
            num_queue_tokens: gauge(
                "num_queue_tokens",
                "Tokens that wait for a step, or on decode for memory",
            ),
            queue_oldest_age: ratio(
                "queue_oldest_age_seconds",
                "Age of the oldest waiting request",
            ),
            num_retracted_reqs: gauge("num_retracted_reqs", "Requests whose KV is in host memory"),
            bootstrap_queue_size: gauge("bootstrap_queue_size", "Prefill: requests in bootstrap"),
            num_prefill_inflight_queue_reqs: gauge(
                "num_prefill_inflight_queue_reqs",
                "Prefill: computed requests whose KV is still being sent",
            ),
            num_decode_prealloc_queue_reqs: gauge(
                "num_decode_prealloc_queue_reqs",
                "Decode: requests without pages yet",
            ),
            transfer_queue_size: gauge(
                "transfer_queue_size",
                "Decode: requests whose KV is in transfer",
            ),
            num_decode_transfer_queue_reqs: gauge(
                "num_decode_transfer_queue_reqs",
                "Decode: requests whose KV is in transfer",
            ),
            prealloc_tokens: gauge(
                "prealloc_tokens",
                "Decode: slots reserved for KV in transfer",
            ),
            num_used_tokens: gauge("num_used_tokens", "Slots in use by requests"),
            max_total_num_tokens: gauge("max_total_num_tokens", "Slots of the KV pool"),
            token_usage: ratio("token_usage", "Share of the KV pool in use by requests"),
            new_token_ratio: ratio(
                "new_token_ratio",
                "Share of max_new_tokens that requests are expected to use",
            ),
            cache_hit_rate: ratio(
                "cache_hit_rate",
                "Share of prompt tokens found in the cache",
            ),
            gen_throughput: ratio("gen_throughput", "Answer tokens per second"),
            kv_pages: by_state("kv_pages", "Pages of the KV pool by state"),
            window_pages: by_state("window_pages", "Pages of the window space by state"),
            state_slots: by_state("state_slots", "Slots of recurrent states by state"),
            state_slot_bytes: gauge("state_slot_bytes", "Bytes of a slot of recurrent state"),
            req_pool_rows_used: gauge("req_pool_rows_used", "Request rows in use"),
            metadata_rows_used: gauge("metadata_rows_used", "Metadata rows in use"),
            metadata_rows_total: gauge("metadata_rows_total", "Metadata rows"),
            rooms_in_flight: gauge(
                "rooms_in_flight",
                "Requests whose KV transfer has not ended",
            ),
            steps_in_flight: gauge("num_steps_in_flight", "Forward passes in flight"),
        }
    }
}

// === impl Counters ===

impl Counters {
    fn new(registry: &Registry) -> Self {
        let counter = |name: &str, help: &str| {
            register(
                registry,
                IntCounter::with_opts(opts(name, help)).expect("a valid name"),
            )
        };
        let kv_transfer_seconds = opts("kv_transfer_seconds_total", "Time spent sending KV chunks");
        let kv_transfer_seconds = Counter::with_opts(kv_transfer_seconds).expect("a valid name");
        Self {
            requests: counter("num_requests_total", "Requests accepted"),
            aborted_requests: counter(
                "num_aborted_requests_total",
                "Requests that ended without their answer",
            ),
            retractions: counter(
                "num_retractions_total",
                "Retractions: requests that gave up their pages",
            ),
            bootstrap_failed_reqs: counter(
                "bootstrap_failed_reqs",
                "Requests that failed in bootstrap",
            ),
            transfer_failed_reqs: counter("transfer_failed_reqs", "KV transfers that failed"),
            prompt_tokens: counter("prompt_tokens_total", "Prompt tokens, cached ones included"),
            prefill_tokens: counter("prefill_tokens_total", "Prompt tokens computed"),
            cached_tokens: counter("cached_tokens_total", "Prompt tokens found in the cache"),
            decode_cached_tokens: counter(
                "decode_cached_tokens_total",
                "Decode: prompt tokens found in the cache, whose KV prefill did not send",
            ),
            generation_tokens: counter("generation_tokens_total", "Answer tokens"),
            kv_transfer_bytes: counter("kv_transfer_bytes_total", "KV bytes sent or received"),
            kv_transfer_seconds: register(registry, kv_transfer_seconds),
            steps: counter("num_steps_total", "Forward passes"),
            overlapped_steps: counter(
                "num_overlapped_steps_total",
                "Forward passes launched before the results of the last one were known",
            ),
            graph_replays: counter(
                "num_graph_replays_total",
                "Forward passes replayed as a graph",
            ),
            kv_saturations: counter(
                "kv_saturated_values_total",
                "Elements of keys and values beyond the range of FP8, which were stored as its largest; of drafts and draft models, too",
            ),
        }
    }
}

// === impl Histograms ===

impl Histograms {
    fn new(registry: &Registry) -> Self {
        let buckets = prometheus::exponential_buckets(BUCKETS_FIRST_S, 2.0, BUCKETS);
        let buckets = buckets.expect("a positive start and factor");
        let histogram = |name: &str, help: &str| {
            let opts = HistogramOpts::from(opts(name, help)).buckets(buckets.clone());
            register(registry, Histogram::with_opts(opts).expect("a valid name"))
        };
        Self {
            time_to_first_token: histogram("time_to_first_token_seconds", "Arrival to first token"),
            inter_token_latency: histogram("inter_token_latency_seconds", "Token to token"),
            e2e_request_latency: histogram("e2e_request_latency_seconds", "Arrival to last token"),
            queue_time: histogram("queue_time_seconds", "Arrival to first step"),
            bootstrap_time: histogram("bootstrap_time_seconds", "Arrival to end of bootstrap"),
            transfer_time: histogram(
                "kv_transfer_time_seconds",
                "Wait for the end of the KV transfer",
            ),
            step_time: histogram("step_time_seconds", "One forward pass"),
        }
    }
}

// === impl SpeculationMetrics ===

impl SpeculationMetrics {
    fn new(registry: &Registry) -> Self {
        let gauge = |name: &str, help: &str| {
            let gauge = Gauge::with_opts(opts(name, help)).expect("a valid name");
            register(registry, gauge)
        };
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::with_opts(opts(name, help)).expect("a valid name");
            register(registry, counter)
        };
        Self {
            accept_length: gauge(
                "spec_accept_length",
                "Tokens drawn per step of a request, of an engine that speculates",
            ),
            accept_rate: gauge("spec_accept_rate", "Share of drafts that were accepted"),
            verify: counter(
                "spec_verify_total",
                "Steps of requests of an engine that speculates, with drafts or without",
            ),
            draft_tokens: counter("spec_draft_tokens_total", "Drafts computed"),
            accepted_tokens: counter("spec_accepted_tokens_total", "Drafts accepted"),
        }
    }
}

// === impl Throughput ===

impl Throughput {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            since: now,
            tokens: 0,
        }
    }

    /// Tokens per second, once per window.
    pub(crate) fn add(&mut self, tokens: u64, now: Instant) -> Option<f64> {
        self.tokens += tokens;
        let elapsed = now.duration_since(self.since);
        if elapsed < THROUGHPUT_WINDOW {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "a window has few tokens")]
        let rate = self.tokens as f64 / elapsed.as_secs_f64();
        *self = Self::new(now);
        Some(rate)
    }
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("pdserve_{name}"), help)
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, metric: C) -> C {
    registry
        .register(Box::new(metric.clone()))
        .expect("every name is registered once");
    metric
}
