//! Flags of SGLang's start scripts that have nothing to switch here. Accepting them keeps such
//! scripts working; each one given is named in the log, so that nobody believes it did something.

use clap::Args;

#[derive(Debug, Args)]
#[command(next_help_heading = "Accepted and ignored")]
pub(crate) struct IgnoredArgs {
    /// Model code is never run, so there is nothing to trust
    #[arg(long)]
    trust_remote_code: bool,
    /// Metrics are always served
    #[arg(long)]
    enable_metrics: bool,
    /// Cached tokens are always reported
    #[arg(long)]
    enable_cache_report: bool,
    /// There is no warm-up request
    #[arg(long)]
    skip_server_warmup: bool,
    /// The kernels are chosen at start
    #[arg(long, value_name = "NAME")]
    attention_backend: Option<String>,
    /// The kernels are chosen at start
    #[arg(long, value_name = "NAME")]
    sampling_backend: Option<String>,
    /// Steps never block on a collective, so none is watched
    #[arg(long, value_name = "SECONDS")]
    watchdog_timeout: Option<f64>,
    /// Every token is its own event
    #[arg(long, value_name = "TOKENS")]
    stream_interval: Option<u32>,
    /// Figures are in the metrics
    #[arg(long, value_name = "STEPS")]
    decode_log_interval: Option<u32>,
    /// There are no other nodes
    #[arg(long, value_name = "RANK")]
    node_rank: Option<u32>,
    /// There are no other nodes
    #[arg(long, value_name = "HOST:PORT")]
    dist_init_addr: Option<String>,
}

const ALONE: &str = "there are no other nodes";

// === impl IgnoredArgs ===

impl IgnoredArgs {
    /// The flags that were given, with why they switch nothing.
    pub(crate) fn given(&self) -> Vec<(&'static str, &'static str)> {
        let kernels = "the kernels are chosen at start";
        [
            (
                self.trust_remote_code,
                "--trust-remote-code",
                "model code is never run",
            ),
            (
                self.enable_metrics,
                "--enable-metrics",
                "metrics are always served",
            ),
            (
                self.enable_cache_report,
                "--enable-cache-report",
                "cached tokens are always reported",
            ),
            (
                self.skip_server_warmup,
                "--skip-server-warmup",
                "there is no warm-up request",
            ),
            (
                self.attention_backend.is_some(),
                "--attention-backend",
                kernels,
            ),
            (
                self.sampling_backend.is_some(),
                "--sampling-backend",
                kernels,
            ),
            (
                self.watchdog_timeout.is_some(),
                "--watchdog-timeout",
                "no step waits for another process",
            ),
            (
                self.stream_interval.is_some(),
                "--stream-interval",
                "every token is its own event",
            ),
            (
                self.decode_log_interval.is_some(),
                "--decode-log-interval",
                "figures are in the metrics",
            ),
            (self.node_rank.is_some(), "--node-rank", ALONE),
            (self.dist_init_addr.is_some(), "--dist-init-addr", ALONE),
        ]
        .into_iter()
        .filter_map(|(given, flag, why)| given.then_some((flag, why)))
        .collect()
    }
}
