//! Flags for listeners, authentication, limits and shutdown.

use clap::Args;
use pd_protocol::{Secret, labels, ports};
use std::net::{IpAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// Largest body read by default. 32 MiB hold a prompt of 4 million token ids.

#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// Address of all listeners, or a host name that resolves to it
    #[arg(long, default_value = "127.0.0.1", value_name = "HOST", value_parser = host)]
    pub(crate) host: IpAddr,

    /// Port of the HTTP API
    #[arg(long, default_value_t = ports::HTTP, value_name = "PORT")]
    pub(crate) port: u16,

    /// Port of the admin API (cordon, drain, timelines); `--port` + 900 if absent
    #[arg(long, value_name = "PORT")]
    pub(crate) admin_port: Option<u16>,

    /// Bearer token that the HTTP API requires; none if absent
    #[arg(
        long,
        env = labels::ENV_API_KEY,
        hide_env_values = true,
        value_name = "KEY"
    )]
    pub(crate) api_key: Option<Secret>,

    /// Bearer token of the admin API; without one only loopback callers are served
    #[arg(
        long,
        alias = "admin-api-key",
        env = labels::ENV_ADMIN_TOKEN,
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub(crate) admin_token: Option<Secret>,

    /// Largest request body; a larger one is answered with 413 before it is read. Without it, what the longest prompt of the
    /// model takes at most, from 4 MiB to 32 MiB
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_body_bytes: Option<usize>,

    /// How long requests in flight may continue after SIGTERM
    #[arg(long = "drain-timeout-secs", default_value = "300", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) drain_timeout: Duration,

    /// Write hashes of the KV and state of every request, where it is computed, sent, received and stepped on, to a new file
    /// in this folder, for `pd-agent replay`. Prompts are in it, too. Requests are slower; off if absent
    #[arg(long, value_name = "DIR")]
    pub(crate) observe_kv: Option<PathBuf>,

    /// Collector that gets OpenTelemetry's spans of every request and its stages, by OTLP over HTTP, such as
    /// http://otel-collector:4318
    #[arg(long, env = pd_protocol::labels::ENV_TRACES_ENDPOINT, hide_env_values = true, value_name = "URL")]
    pub(crate) otlp_traces_endpoint: Option<String>,

    /// Check the command line and exit: status 0 if it is valid, else 2 with every broken rule
    #[arg(long)]
    pub(crate) check: bool,

    /// Log filter: a level, or `tracing` directives such as `info,pd_engine=debug`
    #[arg(
        long,
        env = "SGLANG_LOG_LEVEL",
        default_value = "info",
        value_name = "FILTER"
    )]
    pub(crate) log_level: String,
}

// === impl ServerArgs ===

impl ServerArgs {
    /// The admin port; `None` if `--port` + 900 exceeds the port range.
    pub(crate) fn admin_port(&self) -> Option<u16> {
        self.admin_port.or_else(|| ports::admin_beside(self.port))
    }
}

/// Parses an address or resolves a name: IPv4 before IPv6, which a peer may lack.
pub(crate) fn host(text: &str) -> Result<IpAddr, String> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse() {
        return Ok(address);
    }
    let found = (text, 0).to_socket_addrs();
    let found = found
        .map_err(|why| format!("this is neither an address nor a name that resolves: {why}"))?;
    let addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    let v4 = addresses.iter().find(|address| address.is_ipv4());
    let first = v4.or(addresses.first()).copied();
    first.ok_or_else(|| "the name resolves to no address".to_owned())
}

/// Parses a time in seconds, whole or fractional; refuses negative and infinite ones.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|why| why.to_string())
}
