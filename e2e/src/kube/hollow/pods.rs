//! What a kubelet would do to the objects of its pods, without the pods.

use super::server;
use super::table::Table;
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// A kubelet writes fifty times a second; this is several of them.
const WRITES_AT_ONCE: usize = 16;

/// Brings every pod of a node up, and removes those that are being deleted.
pub(super) async fn follow(client: Client, node: String, table: Arc<Table>) {
    let api: Api<Pod> = Api::all(client.clone());
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    let mut events = pin!(watcher(api, config).default_backoff());
    let mut servers = HashMap::new();
    let writes = Arc::new(Semaphore::new(WRITES_AT_ONCE));
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                let address = table.note(&pod);
                if let (Some(uid), Some(address)) = (pod.uid(), address) {
                    let start = || server::start(&table, address);
                    servers.entry(uid).or_insert_with(start);
                }
                let (client, writes) = (client.clone(), Arc::clone(&writes));
                if let Some(write) = Write::needed(&pod, address) {
                    tokio::spawn(async move {
                        let _one = writes.acquire().await;
                        write.make(client, &pod).await;
                    });
                }
            }
            Ok(Event::Delete(pod)) => {
                let uid = pod.uid().unwrap_or_default();
                servers.remove(&uid);
                table.forget(&uid);
            }
            // The watch begins again by itself.
            Ok(Event::Init | Event::InitDone) | Err(_) => {}
        }
    }
}

enum Write {
    Status(Value),
    Delete,
}

// === impl Write ===

impl Write {
    /// What the pod's object lacks.
    fn needed(pod: &Pod, address: Option<Ipv4Addr>) -> Option<Self> {
        if pod.metadata.deletion_timestamp.is_some() {
            return Some(Self::Delete);
        }
        let condition = |name: &str| {
            let status = pod.status.as_ref()?;
            let mut conditions = status.conditions.iter().flatten();
            Some(conditions.find(|is| is.type_ == name)?.status == "True")
        };
        let spec = pod.spec.as_ref()?;
        let mut gates = spec.readiness_gates.iter().flatten();
        let ready = gates.all(|gate| condition(&gate.condition_type) == Some(true));
        if condition("ContainersReady") == Some(true) && condition("Ready") == Some(ready) {
            return None;
        }
        let now = Timestamp::now();
        let condition = |name: &str, holds: bool| {
            let status = if holds { "True" } else { "False" };
            json!({"type": name, "status": status, "lastTransitionTime": now})
        };
        let containers = spec.containers.iter().map(|container| {
            json!({
                "name": container.name, "image": container.image, "imageID": "hollow",
                "ready": true, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            })
        });
        let mut status = json!({
            "phase": "Running", "startTime": now,
            "conditions": [
                condition("Initialized", true), condition("ContainersReady", true), condition("Ready", ready),
            ],
            "containerStatuses": containers.collect::<Vec<_>>(),
        });
        // Another's pod, such as the operator's, runs as well, and answers no requests.
        if let Some(address) = address {
            status["podIP"] = json!(address);
            status["podIPs"] = json!([{"ip": address}]);
        }
        Some(Self::Status(status))
    }

    /// What the apiserver refuses, because the pod has changed, comes again with the change.
    async fn make(self, client: Client, pod: &Pod) {
        let namespace = pod.namespace().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(client, &namespace);
        match self {
            Self::Status(status) => {
                let seen = json!({"resourceVersion": pod.resource_version()});
                let patch = Patch::Strategic(json!({"metadata": seen, "status": status}));
                let params = PatchParams::default();
                let _answer = api.patch_status(&pod.name_any(), &params, &patch).await;
            }
            Self::Delete => {
                let params = DeleteParams::default().grace_period(0);
                let _answer = api.delete(&pod.name_any(), &params).await;
            }
        }
    }
}
