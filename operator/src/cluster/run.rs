//! The controller: watches, the loop over what they tell, and its end.

use super::children::{Watch, watch};
use super::context::{Applied, Context};
use super::reconcile::{reconcile, retry};
use crate::controller::build::BuildConfig;
use futures::{Stream, StreamExt, stream};
use k8s_openapi::NamespaceResourceScope;
use kube::runtime::controller::{Config, Error as ControllerError};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, watcher};
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use pd_crds::PdDeployment;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::fmt::Debug;
use std::future::ready;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

/// Deployments reconciled at the same time: most of a reconcile is waiting for the apiserver.
const CONCURRENCY: u16 = 32;

/// Why the operator does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("no cluster to talk to: {0}; set KUBECONFIG, or run inside a pod")]
    NoCluster(#[source] Box<kube::Error>),
    #[error("cannot read PDDeployments: {0}; install the CRDs (`pd-operator crds`) and the RBAC")]
    CannotList(#[source] Box<kube::Error>),
    #[error("a watch ended before its first list was complete")]
    NeverSynced,
    #[error("cannot catch signals: {0}")]
    Signals(#[from] std::io::Error),
}

/// Reconciles until SIGTERM or SIGINT; reconciles under way are finished.
pub(crate) async fn run(namespace: Option<String>, config: BuildConfig) -> Result<(), RunError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let client = Client::try_default()
        .await
        .map_err(|error| RunError::NoCluster(Box::new(error)))?;
    let deployments: Api<PdDeployment> = api(&client, namespace.as_deref());
    deployments
        .list_metadata(&kube::api::ListParams::default().limit(1))
        .await
        .map_err(|error| RunError::CannotList(Box::new(error)))?;
    let (context, changed) = start_watches(client, namespace.as_deref(), config).await?;
    tracing::info!(
        namespace = namespace.as_deref().unwrap_or("all"),
        "reconciles"
    );
    let controller = Controller::new(deployments, watcher::Config::default())
        .with_config(Config::default().concurrency(CONCURRENCY))
        .reconcile_on(changed)
        .graceful_shutdown_on(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stops: reconciles under way are finished");
        });
    controller
        .run(reconcile, retry, context)
        .for_each(|result| {
            // Failed reconciles are told by `retry`, which also knows the deployment.
            if let Err(error @ (ControllerError::QueueError(_) | ControllerError::RunnerError(_))) =
                result
            {
                tracing::warn!(%error, "the watch of PDDeployments broke off; it begins again");
            }
            ready(())
        })
        .await;
    Ok(())
}

/// Starts the watches of everything a deployment owns, and waits until each has listed.
async fn start_watches(
    client: Client,
    namespace: Option<&str>,
    config: BuildConfig,
) -> Result<
    (
        Arc<Context>,
        impl Stream<Item = ObjectRef<PdDeployment>> + use<>,
    ),
    RunError,
> {
    let pods = begin(&client, namespace);
    let pools = begin(&client, namespace);
    let deployments = begin(&client, namespace);
    let services = begin(&client, namespace);
    let accounts = begin(&client, namespace);
    let bindings = begin(&client, namespace);
    let synced = [
        pods.synced,
        pools.synced,
        deployments.synced,
        services.synced,
        accounts.synced,
        bindings.synced,
    ];
    // The channels hold what the first lists tell; draining them is what lets the lists complete.
    let changed = stream::select_all([
        pods.changed,
        pools.changed,
        deployments.changed,
        services.changed,
        accounts.changed,
        bindings.changed,
    ]);
    let mut changed = Box::pin(changed);
    let all_synced = futures::future::try_join_all(synced);
    let drained = async { while changed.next().await.is_some() {} };
    tokio::select! {
        synced = all_synced => { synced.map_err(|_| RunError::NeverSynced)?; }
        () = drained => return Err(RunError::NeverSynced),
    }
    let reporter = Reporter {
        controller: "pd-operator".to_owned(),
        instance: std::env::var("POD_NAME").ok(),
    };
    let context = Context {
        recorder: Recorder::new(client.clone(), reporter),
        client,
        config,
        pods: pods.children,
        pools: pools.children,
        deployments: deployments.children,
        services: services.children,
        accounts: accounts.children,
        bindings: bindings.children,
        applied: Applied::default(),
        admins: Mutex::new(HashMap::new()),
        failures: Mutex::new(HashMap::new()),
    };
    Ok((Arc::new(context), changed))
}

fn begin<K>(client: &Client, namespace: Option<&str>) -> Watch<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static,
{
    watch(api(client, namespace))
}

fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}
