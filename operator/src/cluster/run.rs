//! The controller: watches, the loop over their events, and its end.

use super::children::{Child, Children, NotifyOf, Stored, Watch, watch, watch_metadata};
use super::context::{ApplyCache, Context, version_of};
use super::endpoint::Endpoint;
use super::history;
use super::host_ports::{HostPorts, PortRange};
use super::lease::Candidate;
use super::metrics::Metrics;
use super::nodes::Nodes;
use super::probe::Probes;
use super::reconcile::{reconcile, retry};
use super::report::StatusCache;
use super::shared::{deployments_of, tidy_namespaces};
use super::write_fence::{FenceLayer, WriteFence};
use crate::controller::build::BuildConfig;
use crate::controller::site;
use crate::http_client::HttpClient;
use futures::channel::mpsc;
use futures::future::try_join_all;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt, stream};
use kube::client::ClientBuilder;
use kube::runtime::controller::{Config, Error as ControllerError};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::{Store, Writer};
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use parking_lot::Mutex;
use pd_crds::PdDeployment;
use pd_crds::pod::Pod;
use pd_protocol::labels;
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, oneshot};
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
pub(crate) async fn run(mut config: ClusterConfig) -> Result<(), RunError> {
    let stopped = stop_on_signals()?;
    let metrics = Arc::new(Metrics::new());
    let endpoint = Endpoint::start(config.listen, Arc::clone(&metrics)).await;
    let endpoint = endpoint.map_err(|source| RunError::Listen {
        address: config.listen,
        source,
    })?;
    let fence = match config.leader_election {
        true => WriteFence::closed(),
        false => WriteFence::open(),
    };
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
    let watches = start_watches(client, &config, Arc::clone(&metrics));
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

/// What is not known is not refused: pods then say why they do not start.
async fn kubernetes_minor(client: &Client) -> Option<u32> {
    let version = client.apiserver_version().await;
    let version = version.inspect_err(|error| {
        tracing::warn!(%error, "cannot read the apiserver's version");
    });
    site::minor(&version.ok()?.minor)
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

/// Starts the watches of everything a deployment owns, and waits until each has listed.
async fn start_watches(
    client: Client,
    config: &ClusterConfig,
    metrics: Arc<Metrics>,
) -> Result<
    (
        Arc<Context>,
        impl Stream<Item = ObjectRef<PdDeployment>> + use<>,
    ),
    RunError,
> {
    let mut watches = Watches::new(&client, config.namespace.as_deref());
    let (nodes, changed_nodes, heard) = Nodes::watch(client.clone());
    // Until then it is unknown who may move workers; a refusal is an answer.
    watches.synced.push(heard);
    let reporter = Reporter {
        controller: "pd-operator".to_owned(),
        instance: std::env::var("POD_NAME").ok(),
    };
    let mut build = config.build.clone();
    build.site.kubernetes_minor = kubernetes_minor(&client).await;
    let context = Context {
        recorder: Recorder::new(client.clone(), reporter),
        config: build,
        metrics,
        nodes,
        host_ports: HostPorts::new(config.host_ports.clone()),
        pods: watches.begin(NotifyOf::Everything, |pod| pod),
        pools: watches.begin(NotifyOf::AllButStatus, |pool| pool),
        deployments: watches.begin_metadata(),
        services: watches.begin_metadata(),
        accounts: watches.begin_shared(),
        bindings: watches.begin_shared(),
        budgets: watches.begin_metadata(),
        policies: watches.begin_shared(),
        revisions: watches.begin(NotifyOf::AllButStatus, history::pruned),
        sharing: tokio::sync::Mutex::default(),
        applied: ApplyCache::default(),
        written: StatusCache::default(),
        probes: Probes::new(),
        tokens: Mutex::new(HashMap::new()),
        templates: Mutex::default(),
        scalers: Mutex::new(HashMap::new()),
        // `/metrics` needs no token.
        scrape_client: HttpClient::new(String::new()),
        failures: Mutex::new(HashMap::new()),
        client: client.clone(),
    };
    let Watches {
        synced, changed, ..
    } = watches;
    // The channels hold the first lists; draining them is what lets the lists complete.
    let mut changed = Box::pin(stream::select_all(changed));
    let drained = async { while changed.next().await.is_some() {} };
    tokio::select! {
        synced = try_join_all(synced) => { synced.map_err(|_| RunError::NeverSynced)?; }
        () = drained => return Err(RunError::NeverSynced),
    }
    let context = Arc::new(context);
    let moved = moved(Arc::clone(&context), changed_nodes);
    Ok((context, stream::select(changed, moved)))
}

/// Watches that have begun.
struct Watches<'a> {
    client: &'a Client,
    namespace: Option<&'a str>,
    synced: Vec<oneshot::Receiver<()>>,
    changed: Vec<mpsc::Receiver<ObjectRef<PdDeployment>>>,
}

// === impl Watches ===

impl<'a> Watches<'a> {
    fn new(client: &'a Client, namespace: Option<&'a str>) -> Self {
        Self {
            client,
            namespace,
            synced: Vec::new(),
            changed: Vec::new(),
        }
    }

    fn begin<K: Child>(&mut self, notify: NotifyOf, keep: fn(K) -> K) -> Children<K> {
        let objects = api(self.client, self.namespace);
        self.begun(watch(objects, labels::DEPLOYMENT, notify, keep))
    }

    /// Watches a kind of which only the metadata is read.
    fn begin_metadata<K: Child>(&mut self) -> Children<Stored<K>> {
        let watch = watch_metadata(self.client, self.namespace, labels::DEPLOYMENT);
        self.begun(watch)
    }

    /// Watches a kind of which some are shared by the deployments of a namespace.
    fn begin_shared<K: Child>(&mut self) -> Children<Stored<K>> {
        let (name, value) = labels::MANAGED_BY;
        let label = format!("{name}={value}");
        self.begun(watch_metadata(self.client, self.namespace, &label))
    }

    fn begun<V>(&mut self, watch: Watch<V>) -> Children<V> {
        let Watch {
            children,
            changed,
            synced,
        } = watch;
        self.synced.push(synced);
        self.changed.push(changed);
        children
    }
}

/// Deployments that have a pod on a node that changed.
fn moved(
    context: Arc<Context>,
    nodes: impl Stream<Item = String>,
) -> impl Stream<Item = ObjectRef<PdDeployment>> {
    nodes.flat_map(move |node| {
        let on_node = |pod: &Pod| {
            let spec = pod.spec.as_ref();
            spec.is_some_and(|spec| spec.node_name.as_ref() == Some(&node))
        };
        stream::iter(context.pods.owners_where(on_node))
    })
}

/// The deployments to reconcile, from their watch, but not for a status, which this operator writes.
/// `gone` is notified after one has gone, which nothing is reconciled for.
fn specs(
    deployments: Api<PdDeployment>,
    writer: Writer<PdDeployment>,
    gone: Arc<Notify>,
) -> impl Stream<Item = watcher::Result<PdDeployment>> {
    watcher(deployments, watcher::Config::default())
        .default_backoff()
        .modify(|deployment| deployment.managed_fields_mut().clear())
        .reflect(writer)
        .inspect_ok(move |event| {
            if matches!(event, watcher::Event::Delete(_) | watcher::Event::InitDone) {
                gone.notify_one();
            }
        })
        .applied_objects()
        .predicate_filter(
            |deployment: &PdDeployment| Some(version_of(deployment.meta())),
            Default::default(),
        )
}

/// The objects of one namespace, or of all.
pub(crate) fn api<K: Child>(client: &Client, namespace: Option<&str>) -> Api<K> {
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}
