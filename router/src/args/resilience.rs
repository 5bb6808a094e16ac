//! Flags of retries, circuit breakers and health checks.

use super::ArgsError;
use crate::retry::RetryConfig;
use crate::workers::circuit::CircuitConfig;
use crate::workers::health::HealthConfig;
use clap::Args;
use pd_protocol::Backoff;
use std::time::Duration;

#[derive(Clone, Debug, Args)]
pub(crate) struct RetryArgs {
    /// Attempts after the first, each on another pair where there is one; a worker that could not
    /// be reached is not tried before a probe has reached it.
    #[arg(long, default_value_t = 5)]
    pub(crate) retry_max_retries: u32,
    #[arg(long, default_value_t = 50)]
    pub(crate) retry_initial_backoff_ms: u64,
    #[arg(long, default_value_t = 30_000)]
    pub(crate) retry_max_backoff_ms: u64,
    #[arg(long, default_value_t = 1.5)]
    pub(crate) retry_backoff_multiplier: f64,
    /// Share of a pause that is random, in 0..=1.
    #[arg(long, default_value_t = 0.2)]
    pub(crate) retry_jitter_factor: f64,
    #[arg(long)]
    pub(crate) disable_retries: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CircuitArgs {
    /// Failures in a row, within the window, that open a worker's circuit.
    #[arg(long, default_value_t = 10)]
    pub(crate) cb_failure_threshold: u32,
    /// Probes in a row that must succeed to close it.
    #[arg(long, default_value_t = 3)]
    pub(crate) cb_success_threshold: u32,
    /// How long an open circuit rests before one request probes it.
    #[arg(long, default_value_t = 60)]
    pub(crate) cb_timeout_duration_secs: u64,
    #[arg(long, default_value_t = 120)]
    pub(crate) cb_window_duration_secs: u64,
    #[arg(long)]
    pub(crate) disable_circuit_breaker: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct HealthArgs {
    #[arg(long, default_value_t = 3)]
    pub(crate) health_failure_threshold: u32,
    #[arg(long, default_value_t = 2)]
    pub(crate) health_success_threshold: u32,
    #[arg(long, default_value_t = 5)]
    pub(crate) health_check_timeout_secs: u64,
    #[arg(long, default_value_t = 5)]
    pub(crate) health_check_interval_secs: u64,
    #[arg(long, default_value = "/health")]
    pub(crate) health_check_endpoint: String,
    /// A worker that is not ready after this long is reported in the log; it is probed on.
    #[arg(long, alias = "worker-startup-timeout", default_value_t = 1800)]
    pub(crate) worker_startup_timeout_secs: u64,
    /// Largest pause between probes of a worker that is not ready.
    #[arg(
        long,
        alias = "worker-startup-check-interval-secs",
        default_value_t = 1
    )]
    pub(crate) worker_startup_check_interval: u64,
}

// === impl RetryArgs ===

impl RetryArgs {
    /// # Errors
    /// Refuses a multiplier under 1 and a jitter outside 0..=1.
    pub(crate) fn into_config(self) -> Result<RetryConfig, ArgsError> {
        in_range(
            "retry-backoff-multiplier",
            self.retry_backoff_multiplier,
            (1.0..=1000.0).contains(&self.retry_backoff_multiplier),
            "a pause never shrinks, so it is a number in 1..=1000",
        )?;
        in_range(
            "retry-jitter-factor",
            self.retry_jitter_factor,
            (0.0..=1.0).contains(&self.retry_jitter_factor),
            "it is a share, in 0..=1",
        )?;
        let first = Duration::from_millis(self.retry_initial_backoff_ms);
        let ceiling = Duration::from_millis(self.retry_max_backoff_ms);
        Ok(RetryConfig {
            retries_max: if self.disable_retries {
                0
            } else {
                self.retry_max_retries
            },
            backoff: Backoff::doubling(first, ceiling)
                .factor(self.retry_backoff_multiplier)
                .jitter(self.retry_jitter_factor),
        })
    }
}

// === impl CircuitArgs ===

impl CircuitArgs {
    /// # Errors
    /// Refuses thresholds of 0.
    pub(crate) fn into_config(self) -> Result<CircuitConfig, ArgsError> {
        at_least_one("cb-failure-threshold", self.cb_failure_threshold)?;
        at_least_one("cb-success-threshold", self.cb_success_threshold)?;
        Ok(CircuitConfig {
            enabled: !self.disable_circuit_breaker,
            failures_to_open: self.cb_failure_threshold,
            successes_to_close: self.cb_success_threshold,
            open_for: Duration::from_secs(self.cb_timeout_duration_secs),
            window: Duration::from_secs(self.cb_window_duration_secs),
        })
    }
}

// === impl HealthArgs ===

impl HealthArgs {
    /// # Errors
    /// Refuses thresholds and times of 0 and an endpoint that is no path.
    pub(crate) fn into_config(self) -> Result<HealthConfig, ArgsError> {
        at_least_one("health-failure-threshold", self.health_failure_threshold)?;
        at_least_one("health-success-threshold", self.health_success_threshold)?;
        in_range(
            "health-check-timeout-secs",
            self.health_check_timeout_secs,
            self.health_check_timeout_secs > 0,
            "at least 1",
        )?;
        in_range(
            "health-check-interval-secs",
            self.health_check_interval_secs,
            self.health_check_interval_secs > 0,
            "at least 1",
        )?;
        let endpoint = self
            .health_check_endpoint
            .parse()
            .map_err(|_| ArgsError::OutOfRange {
                flag: "health-check-endpoint",
                value: self.health_check_endpoint.clone(),
                rule: "it is a path, such as /health",
            })?;
        Ok(HealthConfig {
            endpoint,
            interval: Duration::from_secs(self.health_check_interval_secs),
            timeout: Duration::from_secs(self.health_check_timeout_secs),
            failures_to_unready: self.health_failure_threshold,
            successes_to_ready: self.health_success_threshold,
            unready_interval_max: Duration::from_secs(self.worker_startup_check_interval.max(1)),
            startup_timeout: Duration::from_secs(self.worker_startup_timeout_secs),
        })
    }
}

fn at_least_one(flag: &'static str, value: u32) -> Result<(), ArgsError> {
    in_range(flag, value, value > 0, "at least 1")
}

fn in_range(
    flag: &'static str,
    value: impl ToString,
    holds: bool,
    rule: &'static str,
) -> Result<(), ArgsError> {
    if holds {
        return Ok(());
    }
    Err(ArgsError::OutOfRange {
        flag,
        value: value.to_string(),
        rule,
    })
}
