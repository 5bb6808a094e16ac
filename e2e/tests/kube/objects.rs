//! The objects that the proofs create, and how they are watched.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Service, ServiceAccount};
use kube::api::ListParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// Pods start in seconds, and a node is called lost after 16.
const LIMIT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The program in `answer.c`.
pub(crate) const IMAGE: &str = "pdserve.invalid/answer:1";
pub(crate) const PORT: u16 = 8080;

/// Where the pods of a namespace are.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// Node → ready pods on it.
    pub(crate) ready: BTreeMap<String, usize>,
    /// Why others are on no node.
    pub(crate) refusals: Vec<String>,
}

fn mk<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("the object fits its kind")
}

pub(crate) fn mk_account(name: &str) -> ServiceAccount {
    mk(json!({"metadata": {"name": name}}))
}

pub(crate) fn mk_config_map(name: &str) -> ConfigMap {
    mk(json!({"metadata": {"name": name}}))
}

pub(crate) fn mk_service() -> Service {
    mk(json!({
        "metadata": {"name": "answer"},
        "spec": {"selector": {"app": "answer"}, "ports": [{"port": PORT}]},
    }))
}

/// A pod that wants one GPU.
pub(crate) fn mk_pod(name: &str) -> Pod {
    let node = json!({"fieldRef": {"fieldPath": "spec.nodeName"}});
    mk(json!({
        "metadata": {"name": name, "labels": {"app": "answer"}},
        "spec": {"containers": [{
            "name": "answer",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "env": [{"name": "NODE_NAME", "valueFrom": node}],
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
            "readinessProbe": {"httpGet": {"port": PORT}, "periodSeconds": 1},
        }]},
    }))
}

/// # Errors
/// When it does not hold in time, or looking fails.
pub(crate) async fn eventually(
    what: &str,
    mut holds: impl AsyncFnMut() -> Result<bool>,
) -> Result<()> {
    let started = Instant::now();
    while !holds().await? {
        ensure!(started.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        sleep(POLL_INTERVAL).await;
    }
    eprintln!("{:5.1} s  {what}", started.elapsed().as_secs_f64());
    Ok(())
}

pub(crate) async fn placement(client: &Client) -> Result<Placement> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut placement = Placement::default();
    for pod in pods.list(&ListParams::default()).await? {
        let node = pod.spec.unwrap_or_default().node_name.unwrap_or_default();
        let conditions = pod.status.unwrap_or_default().conditions;
        for condition in conditions.unwrap_or_default() {
            match (condition.type_.as_str(), condition.status.as_str()) {
                ("Ready", "True") => *placement.ready.entry(node.clone()).or_default() += 1,
                ("PodScheduled", "False") => {
                    placement
                        .refusals
                        .push(condition.message.unwrap_or_default());
                }
                _ => {}
            }
        }
    }
    Ok(placement)
}

/// Waits until node `name` has the condition `Ready` with this status.
pub(crate) async fn wait_node(client: &Client, name: &str, status: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    eventually(&format!("{name} has Ready={status}"), async || {
        let seen = nodes.get(name).await?.status.unwrap_or_default();
        let conditions = seen.conditions.unwrap_or_default();
        Ok(conditions
            .iter()
            .any(|c| c.type_ == "Ready" && c.status == status))
    })
    .await
}
