//! Of grammars; 0 of an engine without any.

use super::{opts, register};
use prometheus::{Histogram, HistogramOpts, IntCounter, Registry};

#[derive(Clone, Debug)]
pub(crate) struct GrammarMetrics {
    pub(crate) requested: IntCounter,
    pub(crate) cache_hits: IntCounter,
    /// Refused ones, too.
    pub(crate) failed: IntCounter,
    pub(crate) timeouts: IntCounter,
    pub(crate) seconds: Histogram,
    pub(crate) mask_seconds: Histogram,
    pub(crate) jump_tokens: IntCounter,
    pub(crate) jump_accepted_tokens: IntCounter,
}

/// 10 µs doubling to 5 s.
const BUCKETS_FIRST_S: f64 = 0.000_01;
const BUCKETS: usize = 20;

// === impl GrammarMetrics ===

impl GrammarMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let buckets = prometheus::exponential_buckets(BUCKETS_FIRST_S, 2.0, BUCKETS);
        let buckets = buckets.expect("a positive start and factor");
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::with_opts(opts(name, help)).expect("a valid name");
            register(registry, counter)
        };
        let histogram = |name: &str, help: &str| {
            let opts = HistogramOpts::from(opts(name, help)).buckets(buckets.clone());
            register(registry, Histogram::with_opts(opts).expect("a valid name"))
        };
        Self {
            requested: counter("num_grammar_total", "Grammars that requests asked for"),
            cache_hits: counter(
                "num_grammar_cache_hit_total",
                "Grammars that had been compiled before",
            ),
            failed: counter(
                "num_grammar_aborted_total",
                "Grammars that were refused, or took too long",
            ),
            timeouts: counter(
                "num_grammar_timeout_total",
                "Grammars that took too long to compile",
            ),
            seconds: histogram("grammar_compilation_time_seconds", "Compiling a grammar"),
            mask_seconds: histogram("grammar_mask_time_seconds", "The mask of one token"),
            jump_tokens: counter(
                "grammar_jump_tokens_total",
                "Tokens of text that grammars forced, computed together with the token before",
            ),
            jump_accepted_tokens: counter(
                "grammar_jump_accepted_tokens_total",
                "Of these, the tokens that were drawn",
            ),
        }
    }
}
