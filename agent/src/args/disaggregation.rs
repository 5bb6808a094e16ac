//! Flags about the split into prefill and decode, and its timeouts.

use super::server::seconds;
use clap::{Args, ValueEnum};
use pd_protocol::ports;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(next_help_heading = "Disaggregation")]
pub(crate) struct DisaggregationArgs {
    /// Which part of a request this process computes
    #[arg(long = "disaggregation-mode", value_enum, default_value_t = Mode::Null)]
    pub(crate) mode: Mode,

    /// Port of the bootstrap server, which prefill opens and decode asks
    #[arg(long = "disaggregation-bootstrap-port", default_value_t = ports::BOOTSTRAP, value_name = "PORT")]
    pub(crate) bootstrap_port: u16,

    /// How KV bytes travel; the names of SGLang's engines mean `auto`
    #[arg(long = "disaggregation-transfer-backend", value_enum, default_value_t = TransferBackendName::Auto)]
    pub(crate) transfer_backend: TransferBackendName,

    /// Tensor-parallel ranks of decode; only prefill is told
    #[arg(long = "disaggregation-decode-tp", value_name = "N")]
    pub(crate) decode_tp: Option<u32>,

    /// Data-parallel replicas of decode; only prefill is told
    #[arg(long = "disaggregation-decode-dp", value_name = "N")]
    pub(crate) decode_dp: Option<u32>,

    /// Pipeline stages of prefill
    #[arg(long = "disaggregation-prefill-pp", value_name = "N")]
    pub(crate) prefill_pp: Option<u32>,

    /// RDMA devices by name, separated by commas, the preferred first; all there are if absent
    #[arg(long = "disaggregation-ib-device", value_name = "NAMES", value_delimiter = ',',
          value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) ib_device: Vec<String>,

    /// Row of the RDMA ports' GID table; RoCE v2 over IPv4 before IPv6 if absent
    #[arg(long = "disaggregation-ib-gid-index", value_name = "ROW")]
    pub(crate) ib_gid_index: Option<u8>,

    /// Traffic class of RoCE packets: DSCP in its upper six bits
    #[arg(
        long = "disaggregation-ib-traffic-class",
        default_value_t = 0,
        value_name = "BYTE"
    )]
    pub(crate) ib_traffic_class: u8,

    /// Queue pairs between two RDMA devices
    #[arg(long = "disaggregation-ib-queue-pairs", default_value_t = 2, value_name = "N",
          value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) ib_queue_pairs: u8,

    /// MiB on their way to one peer over RDMA at once
    #[arg(long = "disaggregation-ib-max-in-flight", default_value_t = 64, value_name = "MIB",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ib_max_in_flight: u32,

    /// Ranges of memory that one RDMA write gathers
    #[arg(long = "disaggregation-ib-max-sge", default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u8).range(1..=4))]
    pub(crate) ib_max_sge: u8,

    /// Tokens that decode reserves for the answer of each request when it admits a new one
    #[arg(long, default_value_t = 512, value_name = "TOKENS")]
    pub(crate) num_reserved_decode_tokens: u32,

    /// Requests beyond --max-running-requests whose KV may be on its way; as many if absent
    #[arg(long = "disaggregation-decode-extra-slots", value_name = "N")]
    pub(crate) decode_extra_slots: Option<u32>,

    /// Decode steps between two looks at finished transfers
    #[arg(long = "disaggregation-decode-polling-interval", default_value_t = 1, value_name = "STEPS",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) decode_polling_interval: u32,

    /// Longest wait of a request for its peer to appear; on prefill also for a decode that has died
    /// before it said where the KV goes, if no router ends the request
    #[arg(
        long = "disaggregation-bootstrap-timeout",
        env = "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT",
        default_value = "300",
        value_name = "SECONDS",
        value_parser = seconds
    )]
    pub(crate) bootstrap_timeout: Duration,

    /// Longest wait of a request for the first byte of its KV, once bootstrapped
    #[arg(
        long = "disaggregation-waiting-timeout",
        env = "SGLANG_DISAGGREGATION_WAITING_TIMEOUT",
        default_value = "300",
        value_name = "SECONDS",
        value_parser = seconds
    )]
    pub(crate) waiting_timeout: Duration,

    /// Longest time from the first byte of a request's KV to the last
    #[arg(
        long = "disaggregation-transfer-timeout",
        default_value = "300",
        value_name = "SECONDS",
        value_parser = seconds
    )]
    pub(crate) transfer_timeout: Duration,

    /// Time between two heartbeats to a peer
    #[arg(
        long = "disaggregation-heartbeat-interval",
        env = "SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL",
        default_value = "5",
        value_name = "SECONDS",
        value_parser = seconds
    )]
    pub(crate) heartbeat_interval: Duration,

    /// Heartbeats missed before a peer counts as dead
    #[arg(
        long = "disaggregation-heartbeat-max-failure",
        env = "SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE",
        default_value_t = 2,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub(crate) heartbeat_max_failure: u32,

    /// Probability that a transfer is failed on purpose
    #[arg(
        long = "disaggregation-test-failure-prob",
        env = pd_protocol::labels::ENV_TEST_FAILURE_PROB,
        default_value_t = 0.0,
        hide = true
    )]
    pub(crate) test_failure_prob: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Prefill and decode in this process
    Null,
    Prefill,
    Decode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransferBackendName {
    Auto,
    Shm,
    Rdma,
    Tcp,
    Fake,
    Mooncake,
    Nixl,
    Mori,
    Ascend,
}

// === impl Mode ===

impl Mode {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Prefill => "prefill",
            Self::Decode => "decode",
        }
    }
}

// === impl TransferBackendName ===

impl TransferBackendName {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Shm => "shm",
            Self::Rdma => "rdma",
            Self::Tcp => "tcp",
            Self::Fake => "fake",
            Self::Mooncake => "mooncake",
            Self::Nixl => "nixl",
            Self::Mori => "mori",
            Self::Ascend => "ascend",
        }
    }

    /// Whether the name is that of an engine we do not bring, so that `auto` serves in its place.
    pub(crate) const fn is_foreign(self) -> bool {
        matches!(
            self,
            Self::Mooncake | Self::Nixl | Self::Mori | Self::Ascend
        )
    }
}
