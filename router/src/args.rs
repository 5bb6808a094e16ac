//! The command line, in the form of `sglang_router.launch_router`, so that a start script written
//! for SGLang's router starts this one. Holds flags and their checks; what a flag does is said
//! where its configuration type lives.

mod access;
mod discovery;
mod limits;
mod resilience;
mod sglang;
mod workers;

pub(crate) use access::{AccessArgs, AccessArgsError};
pub(crate) use discovery::{DiscoveryArgs, DiscoveryArgsError};
pub(crate) use limits::LimitArgs;
pub(crate) use resilience::{CircuitArgs, HealthArgs, RetryArgs};
pub(crate) use sglang::{RefusedFlag, SglangArgs};
pub(crate) use workers::{WorkerArgs, WorkerArgsError};

use crate::config::Config;
use crate::cors::OriginError;
use crate::policy::{Policies, PolicyName};
use clap::{Parser, ValueEnum};
use pd_protocol::ports;

/// Sends each request to one prefill and one decode worker at the same time, and relays decode's
/// answer.
#[derive(Clone, Debug, Parser)]
#[command(name = "pd-router", version)]
pub struct Args {
    /// Address of the client-facing API.
    #[arg(long, default_value = "0.0.0.0")]
    pub(crate) host: String,
    #[arg(long, default_value_t = ports::HTTP)]
    pub(crate) port: u16,
    /// Address of the admin API; `--host` if absent.
    #[arg(long)]
    pub(crate) admin_host: Option<String>,
    /// Port of the admin API (workers, timelines); `--port` + 900 if absent. Its bearer token is
    /// read from the environment variable PDSERVE_ADMIN_TOKEN; without one only loopback callers
    /// are served.
    #[arg(long)]
    pub(crate) admin_port: Option<u16>,
    /// Serve `/metrics` on a port of its own too.
    #[arg(long)]
    pub(crate) prometheus_port: Option<u16>,
    #[arg(long)]
    pub(crate) prometheus_host: Option<String>,
    #[command(flatten)]
    pub(crate) workers: WorkerArgs,
    #[command(flatten)]
    pub(crate) discovery: DiscoveryArgs,
    /// How a worker is chosen in every pool.
    #[arg(long, value_enum, default_value_t = PolicyName::LeastLoaded)]
    pub(crate) policy: PolicyName,
    #[arg(long, value_enum)]
    pub(crate) prefill_policy: Option<PolicyName>,
    #[arg(long, value_enum)]
    pub(crate) decode_policy: Option<PolicyName>,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) retry: RetryArgs,
    #[command(flatten)]
    pub(crate) circuit: CircuitArgs,
    #[command(flatten)]
    pub(crate) health: HealthArgs,
    #[command(flatten)]
    pub(crate) access: AccessArgs,
    /// Collector that gets OpenTelemetry's spans of every request, by OTLP over HTTP, such as http://otel-collector:4318.
    #[arg(long, env = pd_protocol::labels::ENV_TRACES_ENDPOINT, hide_env_values = true, value_name = "URL")]
    pub(crate) otlp_traces_endpoint: Option<String>,
    /// Check the command line and exit: status 0 if it can start, else what is wrong with it.
    #[arg(long)]
    pub(crate) check: bool,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    #[arg(long, default_value = "info")]
    pub(crate) log_level: String,
    #[command(flatten)]
    pub(crate) sglang: SglangArgs,
}

/// Why a command line cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ArgsError {
    #[error(transparent)]
    Workers(#[from] WorkerArgsError),
    #[error(transparent)]
    Discovery(#[from] DiscoveryArgsError),
    #[error(transparent)]
    Access(#[from] AccessArgsError),
    #[error(transparent)]
    Sglang(#[from] RefusedFlag),
    #[error(transparent)]
    Origin(#[from] OriginError),
    #[error("--port {0} leaves no admin port 900 above it; set --admin-port")]
    NoAdminPort(u16),
    #[error("--{flag} is {value}: {rule}")]
    OutOfRange {
        flag: &'static str,
        value: String,
        rule: &'static str,
    },
}

// === impl Args ===

impl Args {
    /// Policies, with their flags, in whose place another serves.
    pub(crate) fn substituted_policies(&self) -> Vec<String> {
        let policies = [
            ("--policy", Some(self.policy)),
            ("--prefill-policy", self.prefill_policy),
            ("--decode-policy", self.decode_policy),
        ];
        let given = policies.into_iter().filter_map(|(flag, policy)| {
            let policy = policy.filter(|policy| policy.is_substituted())?;
            Some(format!("{flag} {}", policy.to_possible_value()?.get_name()))
        });
        given.collect()
    }

    fn admin_port(&self) -> Result<u16, ArgsError> {
        let port = self.admin_port.or_else(|| ports::admin_beside(self.port));
        port.ok_or(ArgsError::NoAdminPort(self.port))
    }

    /// # Errors
    /// Names the flag, its value and the rule it breaks.
    pub fn into_config(self) -> Result<Config, ArgsError> {
        self.sglang.check()?;
        let admin_port = self.admin_port()?;
        let admin_host = self.admin_host.unwrap_or_else(|| self.host.clone());
        let prometheus_host = self.prometheus_host.unwrap_or_else(|| self.host.clone());
        let has_key = self.access.peer_key_file.is_some();
        let pairs = self.workers.pd_disaggregation;
        let discovery = self.discovery.into_config(pairs, has_key)?;
        Ok(Config {
            api: (self.host, self.port),
            admin: (admin_host, admin_port),
            prometheus: self.prometheus_port.map(|port| (prometheus_host, port)),
            workers: self.workers.into_specs(has_key)?,
            discovery,
            policies: Policies {
                prefill: self.prefill_policy.unwrap_or(self.policy),
                decode: self.decode_policy.unwrap_or(self.policy),
                unified: self.policy,
            },
            queue: self.limits.queue(),
            connections_max: self.limits.max_connections.get(),
            body_bytes_max: self.limits.max_payload_size,
            bodies_bytes_max: self.limits.bodies_bytes_max(),
            request_timeout: self.limits.request_timeout(),
            shutdown_delay: self.limits.shutdown_delay(),
            shutdown_grace: self.limits.shutdown_grace(),
            retry: self.retry.into_config()?,
            circuit: self.circuit.into_config()?,
            health: self.health.into_config()?,
            tls: self.access.tls(),
            peer_key_file: self.access.peer_key_file.clone(),
            cors: self.access.cors()?,
            request_ids: self.access.request_ids(),
            otlp_traces_endpoint: self.otlp_traces_endpoint,
            api_keys: self.access.into_api_keys()?,
            admin_token: access::admin_token()?,
        })
    }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
