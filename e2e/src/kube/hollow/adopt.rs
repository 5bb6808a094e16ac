//! Plays the kubelet of nodes that others make: says that they are ready, renews their leases, and brings their pods up.

use super::table::Table;
use super::{pods, renew_lease};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use tokio::task::JoinSet;

pub(super) async fn follow(client: Client, label: String, table: Arc<Table>) {
    let api: Api<Node> = Api::all(client.clone());
    let config = watcher::Config::default().labels(&label);
    let mut events = pin!(watcher(api.clone(), config).default_backoff());
    let mut kubelets: HashMap<String, JoinSet<()>> = HashMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(node) | Event::InitApply(node)) => {
                let name = node.name_any();
                if !is_ready(&node) {
                    make_ready(&api, &name).await;
                }
                kubelets.entry(name.clone()).or_insert_with(|| {
                    let mut tasks = JoinSet::new();
                    tasks.spawn(renew_lease(client.clone(), name.clone()));
                    tasks.spawn(pods::follow(client.clone(), name, Arc::clone(&table)));
                    tasks
                });
            }
            Ok(Event::Delete(node)) => drop(kubelets.remove(&node.name_any())),
            // The watch begins again by itself.
            Ok(Event::Init | Event::InitDone) | Err(_) => {}
        }
    }
}

fn is_ready(node: &Node) -> bool {
    let status = node.status.as_ref();
    let mut conditions = status.iter().flat_map(|it| it.conditions.iter().flatten());
    conditions.any(|is| is.type_ == "Ready" && is.status == "True")
}

async fn make_ready(api: &Api<Node>, name: &str) {
    let now = Timestamp::now();
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Hollow",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    });
    let patch = Patch::Strategic(json!({"status": {"conditions": [ready]}}));
    let params = PatchParams::default();
    // One that is refused comes again with the node's next change.
    if let Err(error) = api.patch_status(name, &params, &patch).await {
        eprintln!("the status of {name}: {error}");
    }
}
