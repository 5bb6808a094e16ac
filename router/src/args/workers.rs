//! Workers named on the command line: `--prefill URL [PORT]`, `--decode URL`, `--worker-urls`.

use crate::client::{Endpoint, EndpointError};
use clap::{ArgAction, Args};
use pd_protocol::Role;
use pd_protocol::workers::WorkerSpec;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct WorkerArgs {
    /// Serve pairs of prefill and decode workers; implied by `--prefill` and `--decode`.
    #[arg(long)]
    pub(crate) pd_disaggregation: bool,
    /// URL of a prefill worker and, where it is not the default, the port of its bootstrap server
    /// (`none`: the default). May be repeated.
    #[arg(long, num_args = 1..=2, action = ArgAction::Append, value_names = ["URL", "PORT"])]
    pub(crate) prefill: Vec<String>,
    /// URL of a decode worker. May be repeated.
    #[arg(long, action = ArgAction::Append, value_name = "URL")]
    pub(crate) decode: Vec<String>,
    /// URLs of unified workers.
    #[arg(long, num_args = 0.., value_name = "URL")]
    pub(crate) worker_urls: Vec<String>,
}

/// A worker flag that names no worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerArgsError {
    #[error("--prefill {0}: a bootstrap port follows the URL of its prefill worker, once")]
    PortWithoutUrl(String),
    #[error("--prefill {url} {port}: the bootstrap port is a number in 1..=65535, or `none`")]
    Port { url: String, port: String },
    #[error("{flag}: {source}")]
    Url {
        flag: &'static str,
        source: EndpointError,
    },
    #[error(
        "--worker-urls names unified workers; --pd-disaggregation takes --prefill and --decode"
    )]
    UnifiedWithPairs,
}

const PREFILL: &str = "--prefill";
const DECODE: &str = "--decode";
const WORKERS: &str = "--worker-urls";

// === impl WorkerArgs ===

impl WorkerArgs {
    /// # Errors
    /// Names the flag and value that cannot be a worker.
    pub(crate) fn into_specs(self, has_key: bool) -> Result<Vec<WorkerSpec>, WorkerArgsError> {
        if self.pd_disaggregation && !self.worker_urls.is_empty() {
            return Err(WorkerArgsError::UnifiedWithPairs);
        }
        let mut specs = prefill_specs(self.prefill, has_key)?;
        for url in self.decode {
            specs.push(spec(DECODE, Role::Decode, url, has_key)?);
        }
        for url in self.worker_urls {
            specs.push(spec(WORKERS, Role::Unified, url, has_key)?);
        }
        Ok(specs)
    }
}

/// `--prefill` values arrive as one list, URLs and ports in the order given.
fn prefill_specs(values: Vec<String>, has_key: bool) -> Result<Vec<WorkerSpec>, WorkerArgsError> {
    let mut specs: Vec<WorkerSpec> = Vec::new();
    let mut port_may_follow = false;
    for value in values {
        let is_port = value.parse::<i64>().is_ok() || value.eq_ignore_ascii_case("none");
        if !is_port {
            specs.push(spec(PREFILL, Role::Prefill, value, has_key)?);
            port_may_follow = true;
            continue;
        }
        let Some(last) = specs.last_mut().filter(|_| port_may_follow) else {
            return Err(WorkerArgsError::PortWithoutUrl(value));
        };
        port_may_follow = false;
        if value.eq_ignore_ascii_case("none") {
            continue;
        }
        match value.parse::<u16>() {
            Ok(port) if port > 0 => last.bootstrap_port = Some(port),
            Ok(_) | Err(_) => {
                return Err(WorkerArgsError::Port {
                    url: last.url.clone(),
                    port: value,
                });
            }
        }
    }
    Ok(specs)
}

fn spec(
    flag: &'static str,
    role: Role,
    url: String,
    has_key: bool,
) -> Result<WorkerSpec, WorkerArgsError> {
    Endpoint::parse(&url, has_key).map_err(|source| WorkerArgsError::Url { flag, source })?;
    Ok(WorkerSpec {
        id: url.clone(),
        role,
        url,
        bootstrap_host: None,
        bootstrap_port: None,
        given_kv_compat: None,
    })
}
