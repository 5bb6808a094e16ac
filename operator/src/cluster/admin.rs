//! Calls to the admin ports of one deployment's routers and workers.

use crate::http_client::{CallError, HttpClient};
use http::Method;
use pd_protocol::ports;
use pd_protocol::workers::DrainStatus;
use serde::de::DeserializeOwned;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Longest wait for an admin API: a frozen process must not hold up the others' reconciles.
const LIMIT: Duration = Duration::from_secs(2);

/// A client with the deployment's token.
#[derive(Clone)]
pub(crate) struct Admin {
    client: HttpClient,
}

// === impl Admin ===

impl Admin {
    pub(crate) fn new(token: String) -> Self {
        Self {
            client: HttpClient::new(token),
        }
    }

    /// URL on the admin port of a pod; nothing while the pod has no address.
    pub(crate) fn url(pod_ip: &str, path: &str) -> Option<String> {
        let ip: IpAddr = pod_ip.parse().ok()?;
        Some(format!(
            "http://{}{path}",
            SocketAddr::new(ip, ports::ADMIN)
        ))
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, url: &str) -> Result<T, CallError> {
        self.client.call(Method::GET, url, None, LIMIT).await
    }

    /// Asks a worker to finish what it has and take nothing new.
    pub(crate) async fn drain(&self, url: &str) -> Result<DrainStatus, CallError> {
        self.client.call(Method::POST, url, None, LIMIT).await
    }
}
