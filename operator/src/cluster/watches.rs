//! The watches of everything a deployment owns but its Secret, and the reconciles that they ask for.

use super::children::{Child, Children, NotifyOf, Stored, Watch, watch, watch_metadata};
use super::context::Context;
use super::history;
use super::host_ports::HostPorts;
use super::index::Index;
use super::memory::Memories;
use super::metrics::Metrics;
use super::nodes::Nodes;
use super::run::{ClusterConfig, RunError};
use super::version::request_version;
use super::vital_tasks::VitalTasks;
use crate::controller::site::{self, GangApis};
use futures::channel::mpsc;
use futures::future::try_join_all;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::reflector::store::Writer;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use pd_crds::PdDeployment;
use pd_crds::pod::Pod;
use pd_protocol::labels;
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::{Notify, oneshot};

/// Starts the watches of everything a deployment owns but its Secret, and waits until each has listed.
pub(super) async fn start(
    client: Client,
    config: &ClusterConfig,
    metrics: Arc<Metrics>,
    vital: &VitalTasks,
) -> Result<
    (
        Arc<Context>,
        impl Stream<Item = ObjectRef<PdDeployment>> + use<>,
    ),
    RunError,
> {
    let mut watches = Watches::new(&client, config.namespace.as_deref(), vital);
    let (nodes, changed_nodes, heard) = Nodes::watch(client.clone(), vital);
    // Until then it is unknown who may move workers; a refusal is an answer.
    watches.synced.push(heard);
    let reporter = Reporter {
        controller: "pd-operator".to_owned(),
        instance: std::env::var("POD_NAME").ok(),
    };
    let mut build = config.build.clone();
    build.site.kubernetes_minor = kubernetes_minor(&client).await;
    build.site.gangs = gang_apis(&client).await;
    let context = Context {
        recorder: Recorder::new(client.clone(), reporter),
        config: build,
        metrics,
        index: Index {
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
        },
        memories: Memories::default(),
        sharing: tokio::sync::Mutex::default(),
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
    let of_nodes = of_changed_nodes(Arc::clone(&context), changed_nodes.into_stream());
    Ok((context, stream::select(changed, of_nodes)))
}

/// Watches that have begun.
struct Watches<'a> {
    client: &'a Client,
    namespace: Option<&'a str>,
    vital: &'a VitalTasks,
    synced: Vec<oneshot::Receiver<()>>,
    changed: Vec<mpsc::Receiver<ObjectRef<PdDeployment>>>,
}

// === impl Watches ===

impl<'a> Watches<'a> {
    fn new(client: &'a Client, namespace: Option<&'a str>, vital: &'a VitalTasks) -> Self {
        Self {
            client,
            namespace,
            vital,
            synced: Vec::new(),
            changed: Vec::new(),
        }
    }

    fn begin<K: Child>(&mut self, notify: NotifyOf, keep: fn(K) -> K) -> Children<K> {
        let objects = api(self.client, self.namespace);
        let watch = watch(objects, labels::DEPLOYMENT, notify, keep, self.vital);
        self.begun(watch)
    }

    /// Watches a kind of which only the metadata is read.
    fn begin_metadata<K: Child>(&mut self) -> Children<Stored<K>> {
        let watch = watch_metadata(self.client, self.namespace, labels::DEPLOYMENT, self.vital);
        self.begun(watch)
    }

    /// Watches a kind of which some are shared by the deployments of a namespace.
    fn begin_shared<K: Child>(&mut self) -> Children<Stored<K>> {
        let (name, value) = labels::MANAGED_BY;
        let label = format!("{name}={value}");
        let watch = watch_metadata(self.client, self.namespace, &label, self.vital);
        self.begun(watch)
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
fn of_changed_nodes(
    context: Arc<Context>,
    nodes: impl Stream<Item = String>,
) -> impl Stream<Item = ObjectRef<PdDeployment>> {
    nodes.flat_map(move |node| {
        let on_node = |pod: &Pod| {
            let spec = pod.spec.as_ref();
            spec.is_some_and(|spec| spec.node_name.as_ref() == Some(&node))
        };
        stream::iter(context.index.pods.owners_where(on_node))
    })
}

/// The deployments to reconcile, from their watch, but not for a status, which this operator writes.
/// `gone` is notified after one has gone, which nothing is reconciled for.
pub(super) fn specs(
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
            |deployment: &PdDeployment| Some(request_version(deployment.meta())),
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

/// What is not known is not refused: pods then say why they do not start.
async fn kubernetes_minor(client: &Client) -> Option<u32> {
    let version = client.apiserver_version().await;
    let version = version.inspect_err(|error| {
        tracing::warn!(%error, "cannot read the apiserver's version");
    });
    site::minor(&version.ok()?.minor)
}

/// By whom gangs can be placed. What cannot be read is not used.
async fn gang_apis(client: &Client) -> GangApis {
    let groups = match client.list_api_groups().await {
        Ok(list) => list.groups,
        Err(error) => {
            tracing::warn!(%error, "cannot read which APIs the apiserver serves");
            return GangApis::default();
        }
    };
    let served: HashSet<String> = groups
        .into_iter()
        .flat_map(|group| group.versions)
        .map(|version| version.group_version)
        .collect();
    let serves = async |group: &str, version: &str| {
        let version = format!("{group}/{version}");
        served.contains(&version) && serves_kind(client, &version, "podgroups").await
    };
    let mut kubernetes = None;
    for version in GangApis::KUBERNETES_VERSIONS {
        if kubernetes.is_none() && serves(GangApis::KUBERNETES, version).await {
            kubernetes = Some(version.to_owned());
        }
    }
    let mut kueue = None;
    for version in GangApis::KUEUE_VERSIONS {
        let is = format!("{}/{version}", GangApis::KUEUE);
        let is_served = kueue.is_none() && served.contains(&is);
        if is_served && serves_kind(client, &is, "workloads").await {
            kueue = Some(version.to_owned());
        }
    }
    let (coscheduling, volcano) = (GangApis::COSCHEDULING, GangApis::VOLCANO);
    let apis = GangApis {
        kubernetes,
        coscheduling: serves(coscheduling.0, coscheduling.1).await,
        volcano: serves(volcano.0, volcano.1).await,
        kueue,
    };
    tracing::info!(?apis, "looked for what places gangs");
    apis
}

async fn serves_kind(client: &Client, version: &str, kind: &str) -> bool {
    match client.list_api_group_resources(version).await {
        Ok(list) => list.resources.iter().any(|is| is.name == kind),
        Err(error) => {
            tracing::warn!(%error, version, "cannot read which kinds the apiserver serves");
            false
        }
    }
}
