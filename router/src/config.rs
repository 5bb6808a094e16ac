//! What a router runs with, after the command line has been checked.

use crate::api_keys::ApiKeyConfig;
use crate::cors::CorsOrigins;
use crate::headers::RequestIds;
use crate::policy::Policies;
use crate::queue::QueueConfig;
use crate::retry::RetryConfig;
use crate::tls::TlsFiles;
use crate::workers::circuit::CircuitConfig;
use crate::workers::health::HealthConfig;
use pd_protocol::workers::WorkerSpec;
use pd_protocol::{Role, Secret};
use std::path::PathBuf;
use std::time::Duration;

/// Host name or address, and port.
pub(crate) type HostPort = (String, u16);

#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) api: HostPort,
    pub(crate) admin: HostPort,
    pub(crate) prometheus: Option<HostPort>,
    /// Workers known from the start; more come through the admin API.
    pub workers: Vec<WorkerSpec>,
    /// Find workers by watching pods.
    pub(crate) discovery: Option<DiscoveryConfig>,
    pub(crate) policies: Policies,
    pub(crate) queue: QueueConfig,
    pub(crate) connections_max: usize,
    pub(crate) body_bytes_max: usize,
    /// Of all requests in flight together.
    pub(crate) bodies_bytes_max: usize,
    pub(crate) request_timeout: Duration,
    pub(crate) shutdown_delay: Duration,
    pub(crate) shutdown_grace: Duration,
    pub(crate) retry: RetryConfig,
    pub(crate) circuit: CircuitConfig,
    pub(crate) health: HealthConfig,
    /// Bearer tokens of clients.
    pub(crate) api_keys: ApiKeyConfig,
    /// Certificate and key of the API; plain HTTP without.
    pub(crate) tls: Option<TlsFiles>,
    /// Keys of the deployment, by which it and its workers know each other.
    pub(crate) peer_key_file: Option<PathBuf>,
    /// Web pages that may call the API.
    pub(crate) cors: CorsOrigins,
    /// Which headers name a request.
    pub(crate) request_ids: RequestIds,
    /// Collector of the requests' spans; without one they are not traced.
    pub(crate) otlp_traces_endpoint: Option<String>,
    /// Bearer token of the admin API; without one only loopback callers are served.
    pub admin_token: Option<Secret>,
}

/// Which pods are workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiscoveryConfig {
    /// The router's own namespace if absent.
    pub(crate) namespace: Option<String>,
    /// Label selectors as Kubernetes writes them: `key=value,key=value`.
    pub(crate) selectors: Vec<(Role, String)>,
    /// HTTP port of workers whose pods do not name one.
    pub(crate) port: u16,
    /// Scheme of workers whose pods do not name one.
    pub(crate) scheme: &'static str,
}
