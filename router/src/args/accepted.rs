//! Flags of SGLang's router that change nothing here, accepted so that its start scripts run:
//! tuning of policies that this router does not have, and logging that goes to stderr.

use clap::Args;

#[derive(Clone, Debug, Default, Args)]
pub struct AcceptedArgs {
    #[arg(long, hide = true)]
    pub cache_threshold: Option<f64>,
    #[arg(long, hide = true)]
    pub balance_abs_threshold: Option<u64>,
    #[arg(long, hide = true)]
    pub balance_rel_threshold: Option<f64>,
    #[arg(long, alias = "eviction-interval-secs", hide = true)]
    pub eviction_interval: Option<u64>,
    #[arg(long, hide = true)]
    pub max_tree_size: Option<u64>,
    #[arg(long, hide = true)]
    pub log_dir: Option<String>,
    #[arg(long, hide = true)]
    pub mini_lb: bool,
    #[arg(long, hide = true)]
    pub model_path: Option<String>,
    #[arg(long, hide = true)]
    pub tokenizer_path: Option<String>,
    #[arg(long, num_args = 0.., hide = true)]
    pub request_id_headers: Vec<String>,
    #[arg(long, num_args = 0.., hide = true)]
    pub cors_allowed_origins: Vec<String>,
    #[arg(long, hide = true)]
    pub rate_limit_tokens_per_second: Option<i64>,
}

// === impl AcceptedArgs ===

impl AcceptedArgs {
    /// Flags that were given and have no effect.
    pub fn given(&self) -> Vec<&'static str> {
        let Self {
            cache_threshold,
            balance_abs_threshold,
            balance_rel_threshold,
            eviction_interval,
            max_tree_size,
            log_dir,
            mini_lb,
            model_path,
            tokenizer_path,
            request_id_headers,
            cors_allowed_origins,
            rate_limit_tokens_per_second,
        } = self;
        [
            ("--cache-threshold", cache_threshold.is_some()),
            ("--balance-abs-threshold", balance_abs_threshold.is_some()),
            ("--balance-rel-threshold", balance_rel_threshold.is_some()),
            ("--eviction-interval", eviction_interval.is_some()),
            ("--max-tree-size", max_tree_size.is_some()),
            ("--log-dir", log_dir.is_some()),
            ("--mini-lb", *mini_lb),
            ("--model-path", model_path.is_some()),
            ("--tokenizer-path", tokenizer_path.is_some()),
            ("--request-id-headers", !request_id_headers.is_empty()),
            ("--cors-allowed-origins", !cors_allowed_origins.is_empty()),
            (
                "--rate-limit-tokens-per-second",
                rate_limit_tokens_per_second.is_some(),
            ),
        ]
        .into_iter()
        .filter_map(|(flag, given)| given.then_some(flag))
        .collect()
    }
}
