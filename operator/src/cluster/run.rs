//! The controller: watches, the loop over their events, and its end.

use super::endpoint::Endpoint;
use super::host_ports::PortRange;
use super::lease::Candidate;
use super::metrics::Metrics;
use super::reconcile::{reconcile, retry};
use super::shared::{deployments_of, tidy_namespaces};
use super::vital_tasks::VitalTasks;
use super::watches::{self, api, specs};
use super::write_fence::{FenceLayer, WriteFence};
use crate::controller::build::config::BuildConfig;
use futures::{FutureExt, StreamExt, stream};
use kube::client::ClientBuilder;
use kube::runtime::controller::{Config, Error as ControllerError};
use kube::runtime::reflector::store::Store;
use kube::runtime::{Controller, reflector};
use kube::{Api, Client};
use pd_crds::PdDeployment;
use pd_crds::pod::Pod;
use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Deployments reconciled at the same time: most of a reconcile is waiting for the apiserver.
const CONCURRENCY: u16 = 32;
pub(crate) const LEASE: &str = "pd-operator";

/// Why the operator does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("no cluster to talk to: {0}; set KUBECONFIG, or run inside a pod")]
    NoCluster(#[source] Box<kube::Error>),
    #[error("cannot read PDDeployments: {0}; install the CRDs (`pd-operator crds`) and the RBAC")]
    CannotList(#[source] Box<kube::Error>),
    #[error("a watch ended before its first list was complete")]
    NeverSynced,
    #[error("cannot listen on {address} (--listen): {source}")]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error("cannot read the own pod {pod} for its image: {source}; give --image")]
    OwnImage {
        pod: String,
        source: Box<kube::Error>,
    },
    #[error("lost the Lease {LEASE}: it could not be renewed in time, or another operator has it")]
    LeaseLost,
    #[error("the task {0} is lost, and what it kept up to date with it; its last words are above")]
    TaskLost(&'static str),
    #[error("cannot catch signals: {0}")]
    Signals(#[from] std::io::Error),
}

/// What an operator runs with.
#[derive(Clone, Debug)]
pub(crate) struct ClusterConfig {
    /// Of agents and routers whose spec names none; the own pod's if absent.
    pub(crate) image: Option<String>,
    /// All if absent.
    pub(crate) namespace: Option<String>,
    pub(crate) leader_election: bool,
    pub(crate) listen: SocketAddr,
    /// Of workers that share their node's network.
    pub(crate) host_ports: PortRange,
    pub(crate) build: BuildConfig,
}

/// Reconciles until SIGTERM or SIGINT; reconciles under way are finished.
pub(crate) async fn run(config: ClusterConfig) -> Result<(), RunError> {
    let vital = VitalTasks::new();
    tokio::select! {
        ended = run_beside(config, &vital) => ended,
        lost = vital.lost() => Err(RunError::TaskLost(lost)),
    }
}

async fn run_beside(mut config: ClusterConfig, vital: &VitalTasks) -> Result<(), RunError> {
    let stopped = stop_on_signals()?;
    let metrics = Arc::new(Metrics::new());
    let endpoint = Endpoint::start(config.listen, Arc::clone(&metrics), vital).await;
    let endpoint = endpoint.map_err(|source| RunError::Listen {
        address: config.listen,
        source,
    })?;
    let closed = config.leader_election.then(WriteFence::closed);
    let fence = closed.unwrap_or_else(WriteFence::open);
    let connected = connect(&fence, &metrics).await;
    let (client, plain) = connected.map_err(|error| RunError::NoCluster(Box::new(error)))?;
    let namespace = config.namespace.clone();
    let namespace = namespace.as_deref();
    let deployments: Api<PdDeployment> = api(&client, namespace);
    deployments
        .list_metadata(&kube::api::ListParams::default().limit(1))
        .await
        .map_err(|error| RunError::CannotList(Box::new(error)))?;
    config.build.image = image(&plain, config.image.take(), config.build.image).await?;
    let watches = watches::start(client, &config, Arc::clone(&metrics), vital);
    let (context, mut changed) = watches.await?;
    endpoint.set_ready();
    let mut candidate = config.leader_election.then(|| candidate(&plain, fence));
    if let Some(candidate) = &mut candidate {
        // Events of a watch go into the index meanwhile; reading on keeps the index true.
        let read_on = async { while changed.next().await.is_some() {} };
        tokio::select! {
            () = candidate.acquire() => {}
            () = read_on => return Err(RunError::NeverSynced),
            () = stopped.cancelled() => return Ok(()),
        }
    }
    metrics.leader.set(1);
    tracing::info!(
        namespace = namespace.unwrap_or("all"),
        "starting controller"
    );
    let (reader, writer) = reflector::store();
    let count = count(reader.clone());
    let gone = Arc::new(Notify::new());
    let tidied = tidy_namespaces(Arc::clone(&context), reader.clone(), Arc::clone(&gone));
    let listed = reader.clone();
    let changed = changed.flat_map(move |key| stream::iter(deployments_of(key, &listed)));
    let controller = Controller::for_stream(specs(deployments, writer, gone), reader)
        .with_config(Config::default().concurrency(CONCURRENCY))
        .reconcile_on(changed)
        .graceful_shutdown_on(stopped.cancelled_owned())
        .run(reconcile, retry, context)
        .for_each(|result| {
            // `retry` logs failed reconciles, because it also knows the deployment.
            if let Err(error @ (ControllerError::QueueError(_) | ControllerError::RunnerError(_))) =
                result
            {
                tracing::warn!(%error, "watch of PDDeployments ended; watching again");
            }
            ready(())
        });
    let work = work_beside(controller, tidied);
    let Some(mut candidate) = candidate else {
        work.await;
        return Ok(());
    };
    tokio::select! {
        () = work => {}
        () = candidate.keep(count) => return Err(RunError::LeaseLost),
    }
    candidate.release().await;
    Ok(())
}

/// Ends with `work`, and carries on `beside` until then.
async fn work_beside(work: impl Future<Output = ()>, beside: impl Future<Output = Infallible>) {
    tokio::select! {
        () = work => {}
        never = beside => match never {},
    }
}

/// A token that SIGTERM or SIGINT cancels.
fn stop_on_signals() -> Result<CancellationToken, RunError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping; finishing the reconciles in progress");
        stop.cancel();
    });
    Ok(stopped)
}

/// How many PDDeployments there are; nothing until they were listed.
fn count(listed: Store<PdDeployment>) -> impl Fn() -> Option<usize> {
    move || {
        let is_listed = listed.wait_until_ready().now_or_never().is_some();
        is_listed.then(|| listed.len())
    }
}

/// The image of agents and routers whose spec names none: so that a release names its image in one place, it is
/// that of the own pod where there is one.
async fn image(
    client: &Client,
    given: Option<String>,
    default: String,
) -> Result<String, RunError> {
    let var = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (Some(namespace), Some(pod)) = (var("POD_NAMESPACE"), var("POD_NAME")) else {
        return Ok(given.unwrap_or(default));
    };
    if let Some(given) = given {
        return Ok(given);
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let own = pods.get(&pod).await.map_err(|source| RunError::OwnImage {
        pod,
        source: Box::new(source),
    })?;
    let containers = own.spec.map(|spec| spec.containers).unwrap_or_default();
    let image = containers.into_iter().find_map(|container| container.image);
    Ok(image.unwrap_or(default))
}

/// A client whose writes pass the fence, and one for the Lease that opens it.
async fn connect(fence: &WriteFence, metrics: &Arc<Metrics>) -> kube::Result<(Client, Client)> {
    let config = kube::Config::infer().await;
    let config = config.map_err(kube::Error::InferConfig)?;
    let layer = FenceLayer {
        fence: fence.clone(),
        metrics: Arc::clone(metrics),
    };
    let plain = Client::try_from(config.clone())?;
    let guarded = ClientBuilder::try_from(config)?.with_layer(&layer).build();
    Ok((guarded, plain))
}

fn candidate(client: &Client, fence: WriteFence) -> Candidate {
    let var = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let namespace = var("POD_NAMESPACE").unwrap_or_else(|| client.default_namespace().to_owned());
    // Two processes of one name must not take each other for themselves.
    let name = var("POD_NAME").unwrap_or_else(|| "pd-operator".to_owned());
    let identity = format!("{name}_{:08x}", rand::random::<u32>());
    let api = Api::namespaced(client.clone(), &namespace);
    Candidate::new(api, LEASE, identity, fence)
}
