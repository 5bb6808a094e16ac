//! Finds workers by watching the pods of a Kubernetes namespace: `pods` says what an event changes,
//! this carries it out.
//!
//! A worker is added when its containers are ready, cordoned when its pod is asked to leave, and
//! forgotten when the pod is gone. While the apiserver does not answer, the router goes on with the
//! workers it knows.

mod pods;

use crate::config::DiscoveryConfig;
use crate::net;
use crate::router::Router;
use futures_util::StreamExt;
use futures_util::future::join_all;
use k8s_openapi::api::core::v1;
use kube::Api;
use kube::core::ApiResource;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use pods::{Change, Pod, Pods};
use std::pin::pin;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const WATCH: &str = "watch on pods";

#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    #[error(
        "--service-discovery: no cluster to watch: {0}; run inside a pod with a service account, or set KUBECONFIG"
    )]
    NoCluster(#[source] Box<kube::Error>),
}

/// Begins to watch. The router is ready once every pod that exists was seen and probed.
///
/// # Errors
/// Where there is no cluster to watch.
pub(crate) async fn start(
    router: &Arc<Router>,
    config: DiscoveryConfig,
) -> Result<(), DiscoveryError> {
    let client = net::cluster()
        .await
        .map_err(|error| DiscoveryError::NoCluster(Box::new(error)))?;
    let own = client.default_namespace().to_owned();
    let namespace = config.namespace.unwrap_or(own);
    let api: Api<Pod> =
        Api::namespaced_with(client, &namespace, &ApiResource::erase::<v1::Pod>(&()));
    let mut listed = Vec::new();
    for (role, selector) in config.selectors {
        tracing::info!(namespace, selector, role = ?role, "watching pods");
        let end = CancellationToken::new();
        listed.push(end.clone());
        let pods = Pods::new(role, config.port, config.scheme);
        let watch = watch(Arc::clone(router), api.clone(), selector, pods, end);
        router.spawn(WATCH, watch);
    }
    let synced = Arc::clone(router);
    router.spawn("first list of pods", async move {
        let router = synced;
        join_all(listed.iter().map(CancellationToken::cancelled)).await;
        let workers = router.registry.workers();
        join_all(workers.iter().map(|worker| worker.probed.cancelled())).await;
        tracing::info!(workers = workers.len(), "listed all workers");
        router.set_synced();
    });
    Ok(())
}

/// Follows the pods of one role for as long as the router runs; `listed` is notified of the first
/// list.
async fn watch(
    router: Arc<Router>,
    api: Api<Pod>,
    selector: String,
    mut pods: Pods,
    listed: CancellationToken,
) {
    let config = watcher::Config::default().labels(&selector);
    let mut events = pin!(watcher(api, config).default_backoff());
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                tracing::warn!(%error, selector, "cannot watch pods; retrying");
                continue;
            }
        };
        let done = matches!(event, Event::InitDone);
        for change in pods.take(event) {
            carry_out(&router, change);
        }
        if done {
            listed.cancel();
        }
    }
    router.vitals.report(WATCH, "its events ended");
}

fn carry_out(router: &Arc<Router>, change: Change) {
    let (did, worker, result) = match change {
        Change::Add(spec) => {
            let id = spec.id.clone();
            ("is added", id, router.add_worker(spec))
        }
        Change::Cordon(id) => {
            let result = router.set_cordoned(&id, true);
            ("leaves", id, result)
        }
        Change::Remove(id) => {
            let result = router.remove_worker(&id);
            ("is gone", id, result)
        }
    };
    match result {
        Ok(_) => tracing::info!(worker, "worker {did}"),
        // It was removed through the admin API.
        Err(error) => tracing::warn!(worker, %error, "cannot apply a pod's state to its worker"),
    }
}
