//! When a cluster can be used.

use super::Cluster;
use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// An idle machine needs 4 s, and 15 s with nodes; one that builds meanwhile, several times that.
const READY_LIMIT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

// === impl Cluster ===

impl Cluster {
    pub(super) async fn wait_apiserver(&mut self) -> Result<()> {
        let client = self.kube_client().await?;
        let deadline = Instant::now() + READY_LIMIT;
        loop {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            let Err(e) = client.request_text(request).await else {
                return Ok(());
            };
            self.check_alive()?;
            ensure!(
                Instant::now() < deadline,
                "the apiserver is not ready after {READY_LIMIT:?} ({e}); its log ends:\n{}",
                self.control_plane.apiserver.log_end()
            );
            sleep(POLL_INTERVAL).await;
        }
    }

    /// The controllers work once the first namespace has its service account.
    pub(super) async fn wait_controllers(&mut self) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.kube_client().await?, "default");
        let deadline = Instant::now() + READY_LIMIT;
        while accounts.get_opt("default").await?.is_none() {
            self.check_alive()?;
            ensure!(
                Instant::now() < deadline,
                "namespace default has no service account after {READY_LIMIT:?}; logs are in {}",
                self.dir().join("logs").display()
            );
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    pub(super) async fn wait_nodes(&mut self) -> Result<()> {
        let names: Vec<String> = self.nodes.iter().map(|node| node.name.clone()).collect();
        let api: Api<Node> = Api::all(self.kube_client().await?);
        let deadline = Instant::now() + READY_LIMIT;
        for name in names {
            while !api.get_opt(&name).await?.as_ref().is_some_and(is_ready) {
                self.check_alive()?;
                ensure!(
                    Instant::now() < deadline,
                    "{name} is not Ready after {READY_LIMIT:?}; logs are in {}",
                    self.dir().join("logs").join(&name).display()
                );
                sleep(POLL_INTERVAL).await;
            }
        }
        Ok(())
    }

    /// Gives every node `count` GPUs that do not exist. They stay over a restart of its kubelet.
    ///
    /// # Errors
    /// When the apiserver refuses.
    pub async fn set_gpus(&self, count: u32) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let api: Api<Node> = Api::all(self.kube_client().await?);
        let gpus = json!({"nvidia.com/gpu": count.to_string()});
        let patch = Patch::Merge(json!({"status": {"capacity": gpus, "allocatable": gpus}}));
        for node in &self.nodes {
            api.patch_status(&node.name, &PatchParams::default(), &patch)
                .await?;
        }
        Ok(())
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node
        .status
        .iter()
        .filter_map(|status| status.conditions.as_ref());
    conditions
        .flatten()
        .any(|c| c.type_ == "Ready" && c.status == "True")
}
