//! Flags for the split into prefill and decode, and its timeouts.

use super::server::seconds;
use super::transfer::TransferArgs;
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use pd_protocol::Role;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(next_help_heading = "Disaggregation")]
pub(crate) struct DisaggregationArgs {
    /// Phases of a request that this process computes
    #[arg(long = "disaggregation-mode", value_parser = role(), default_value_t = Role::Unified, value_name = "MODE")]
    pub(crate) role: Role,

    #[command(flatten)]
    pub(crate) transfer: TransferArgs,

    /// Tensor-parallel ranks of decode; set on prefill only
    #[arg(long = "disaggregation-decode-tp", value_name = "N")]
    pub(crate) decode_tp: Option<u32>,

    /// Data-parallel replicas of decode; set on prefill only
    #[arg(long = "disaggregation-decode-dp", value_name = "N")]
    pub(crate) decode_dp: Option<u32>,

    /// Tokens that decode reserves for each running request's answer when it admits a new one
    #[arg(long, default_value_t = 512, value_name = "TOKENS")]
    pub(crate) num_reserved_decode_tokens: u32,

    /// Requests beyond --max-running-requests whose KV may be in transfer; equal to it if absent
    #[arg(long = "disaggregation-decode-extra-slots", value_name = "N")]
    pub(crate) decode_extra_slots: Option<u32>,

    /// Decode steps between polls of the transfers
    #[arg(long = "disaggregation-decode-polling-interval", default_value_t = 1, value_name = "STEPS",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) decode_polling_interval: u32,

    /// Longest wait of a request for its peer to appear; on prefill also for a decode worker that
    /// died before it sent its pages, if no router ends the request
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

    /// Longest time from the first to the last byte of a request's KV
    #[arg(
        long = "disaggregation-transfer-timeout",
        default_value = "300",
        value_name = "SECONDS",
        value_parser = seconds
    )]
    pub(crate) transfer_timeout: Duration,

    /// Time between heartbeats to a peer
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

    /// Probability that a transfer is failed on purpose, for tests
    #[arg(
        long = "disaggregation-test-failure-prob",
        env = pd_protocol::labels::ENV_TEST_FAILURE_PROB,
        default_value_t = 0.0,
        hide = true
    )]
    pub(crate) test_failure_prob: f64,
}

/// Parses a role in SGLang's words.
fn role() -> impl TypedValueParser<Value = Role> {
    let names = Role::ALL.map(|role| match role {
        Role::Prefill | Role::Decode => PossibleValue::new(role.as_str()),
        Role::Unified => {
            PossibleValue::new(role.as_str()).help("Prefill and decode in this process")
        }
    });
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Role>())
}
