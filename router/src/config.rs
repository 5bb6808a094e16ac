//! What a router runs with, after the command line has been checked.

use crate::policy::Policies;
use crate::queue::QueueConfig;
use crate::retry::RetryConfig;
use crate::workers::circuit::CircuitConfig;
use crate::workers::discovery::DiscoveryConfig;
use crate::workers::health::HealthConfig;
use pd_protocol::workers::WorkerSpec;
use std::fmt;
use std::time::Duration;

/// Host name or address, and port.
pub type HostPort = (String, u16);

#[derive(Clone)]
pub struct Config {
    pub api: HostPort,
    pub admin: HostPort,
    pub prometheus: Option<HostPort>,
    /// Workers known from the start; more come through the admin API.
    pub workers: Vec<WorkerSpec>,
    /// Find workers by watching pods.
    pub discovery: Option<DiscoveryConfig>,
    pub policies: Policies,
    pub queue: QueueConfig,
    pub body_bytes_max: usize,
    pub request_timeout: Duration,
    pub shutdown_delay: Duration,
    pub shutdown_grace: Duration,
    pub retry: RetryConfig,
    pub circuit: CircuitConfig,
    pub health: HealthConfig,
    /// Bearer token of clients, passed on to workers.
    pub api_key: Option<String>,
    /// Bearer token of the admin API; without one only loopback callers are served.
    pub admin_token: Option<String>,
}

// === impl Config ===

impl fmt::Debug for Config {
    /// Leaves the secrets out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("api", &self.api)
            .field("admin", &self.admin)
            .field("workers", &self.workers)
            .field("policies", &self.policies)
            .finish_non_exhaustive()
    }
}
