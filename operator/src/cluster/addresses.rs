//! Where a pod's ports are; nothing while it has no address.

use super::facts::PodFacts;
use kube::ResourceExt;
use pd_protocol::labels;
use pd_protocol::ports::WorkerPorts;
use std::net::{IpAddr, SocketAddr};

// === impl PodFacts ===

impl PodFacts {
    /// Base URL of one of its plain ports.
    pub(crate) fn url(&self, port: u16) -> Option<String> {
        self.url_of("http", port)
    }

    /// Base URL of a worker's HTTP API.
    pub(crate) fn api_url(&self) -> Option<String> {
        let scheme = self.pod.annotations().get(labels::SCHEME);
        self.url_of(scheme.map_or("http", String::as_str), self.ports().http)
    }

    fn url_of(&self, scheme: &str, port: u16) -> Option<String> {
        Some(format!("{scheme}://{}", SocketAddr::new(self.ip()?, port)))
    }

    /// Ports of a worker.
    pub(crate) fn ports(&self) -> WorkerPorts {
        WorkerPorts::of(self.pod.annotations())
    }

    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()
    }

    pub(crate) fn admin_url(&self, path: &str) -> Option<String> {
        Some(format!("{}{path}", self.url(self.ports().admin)?))
    }
}
