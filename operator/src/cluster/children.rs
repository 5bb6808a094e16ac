//! The objects of every deployment, as the watches last reported them.
//!
//! A reconcile reads this index instead of the apiserver. Every object
//! names its deployment by label, so that a change is led to the deployment it belongs to, and
//! looking up one deployment's pods costs the same among three thousand as among three. What the
//! deployments of a namespace share lies under a key without a name.

mod indexer;

use super::version::resource_version;
use super::version::version_of;
use super::vital_tasks::VitalTasks;
use futures::channel::mpsc;
use futures::stream::BoxStream;
use futures::{SinkExt, StreamExt};
use indexer::Indexer;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use parking_lot::RwLock;
use pd_crds::PdDeployment;
use pd_protocol::labels;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Deployments that wait to be reconciled because an object of theirs changed; the watch waits
/// while it is full.
const CHANGED_MAX: usize = 1024;

type Key = ObjectRef<PdDeployment>;
type Own<V> = BTreeMap<String, Entry<V>>;
type Objects<V> = HashMap<Key, Own<V>>;

/// Objects that went are remembered this far back: an answer to a write is later than the watch by a
/// few of them at most.
const GONE_MAX: usize = 1024;

/// A kind of object in a namespace, as the client wants it.
pub(crate) trait Child:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Child for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// What is kept of an object that is only ever applied: whose it is, and whether it is as it was left.
#[derive(Debug)]
pub(crate) struct Stored<K> {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) version: u64,
    pub(crate) owners: Vec<OwnerReference>,
    kind: PhantomData<fn() -> K>,
}

/// An index of one kind, kept up by a watch.
#[derive(Debug)]
pub(crate) struct Children<V> {
    objects: Arc<RwLock<Contents<V>>>,
}

#[derive(Debug)]
struct Contents<V> {
    objects: Objects<V>,
    /// UIDs of those that the watch said went, the newest last.
    gone: VecDeque<String>,
}

#[derive(Debug)]
struct Entry<V> {
    uid: Option<String>,
    version: u64,
    resource_version: u64,
    kept: Arc<V>,
}

/// A watch that has begun.
pub(crate) struct Watch<V> {
    pub(crate) children: Children<V>,
    /// Deployments of which an object changed.
    pub(crate) changed: mpsc::Receiver<Key>,
    /// Done when the index is complete for the first time.
    pub(crate) synced: oneshot::Receiver<()>,
}

/// What of an object leads to a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotifyOf {
    Everything,
    /// Not its status, which others or this operator itself write and no decision reads.
    AllButStatus,
}

/// Watches a kind for objects that carry a label and belong to a deployment, or to all of a namespace.
/// `keep` makes of each what is read of it: thousands of them are kept.
pub(crate) fn watch<K: Child>(
    api: Api<K>,
    label: &str,
    notify: NotifyOf,
    keep: fn(K) -> K,
    vital: &VitalTasks,
) -> Watch<K> {
    let config = watcher::Config::default().labels(label);
    let events = watcher(api, config).default_backoff().boxed();
    index(K::kind(&()).into_owned(), events, (notify, keep), vital)
}

/// Watches a kind of which only the metadata is read; the apiserver sends no more.
pub(crate) fn watch_metadata<K: Child>(
    client: &Client,
    namespace: Option<&str>,
    label: &str,
    vital: &VitalTasks,
) -> Watch<Stored<K>> {
    let kind = ApiResource::erase::<K>(&());
    // Of no kind in particular, so that one watcher is compiled for all.
    let api: Api<PartialObjectMeta<DynamicObject>> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    };
    let config = watcher::Config::default().labels(label);
    let events = watcher(api, config).default_backoff().boxed();
    let kept = (NotifyOf::AllButStatus, Stored::of as fn(_) -> _);
    index(kind.kind, events, kept, vital)
}

/// Keeps an index up to date from a watch.
fn index<K, V>(
    kind: String,
    mut events: BoxStream<'static, watcher::Result<Event<K>>>,
    (notify, keep): (NotifyOf, fn(K) -> V),
    vital: &VitalTasks,
) -> Watch<V>
where
    K: Resource + Send + 'static,
    V: Send + Sync + 'static,
{
    let objects = Arc::<RwLock<Contents<V>>>::default();
    let mut indexer = Indexer {
        notify,
        keep,
        objects: Arc::clone(&objects),
        listed: Objects::new(),
    };
    let (mut changed_tx, changed) = mpsc::channel(CHANGED_MAX);
    let (synced_tx, synced) = oneshot::channel();
    vital.spawn("watch", async move {
        let mut synced_tx = Some(synced_tx);
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    tracing::warn!(%error, kind, "watch ended; watching again");
                    continue;
                }
            };
            let done = matches!(event, Event::InitDone);
            for key in indexer.take(event) {
                tracing::trace!(kind, deployment = %key, "object changed");
                if changed_tx.send(key).await.is_err() {
                    return;
                }
            }
            if let Some(synced_tx) = synced_tx.take_if(|_| done) {
                // The operator may have stopped waiting because it ends.
                let _ended = synced_tx.send(());
            }
        }
    });
    Watch {
        children: Children { objects },
        changed,
        synced,
    }
}

// === impl Children ===

impl<V> Children<V> {
    /// The objects of one deployment, by name.
    pub(crate) fn of(&self, deployment: &Key) -> Vec<Arc<V>> {
        let objects = &self.objects.read().objects;
        let own = objects.get(deployment).into_iter().flatten();
        own.map(|(_, entry)| Arc::clone(&entry.kept)).collect()
    }

    /// One object of a deployment.
    pub(crate) fn find(&self, deployment: &Key, name: &str) -> Option<Arc<V>> {
        let objects = &self.objects.read().objects;
        let entry = objects.get(deployment)?.get(name)?;
        Some(Arc::clone(&entry.kept))
    }

    /// Namespaces with objects that deployments share.
    pub(crate) fn sharing_namespaces(&self) -> Vec<String> {
        let objects = &self.objects.read().objects;
        let shared = objects.keys().filter(|key| key.name.is_empty());
        shared.filter_map(|key| key.namespace.clone()).collect()
    }

    /// Goes through the objects of all deployments.
    pub(crate) fn each(&self, mut see: impl FnMut(&V)) {
        let objects = &self.objects.read().objects;
        let all = objects.values().flat_map(BTreeMap::values);
        all.for_each(|entry| see(&entry.kept));
    }

    /// Takes in the answer of a write before the watch reports it: a reconcile in between finds it, and
    /// writes nothing twice. A newer version from the watch stands.
    pub(crate) fn put(&self, key: &Key, metadata: &ObjectMeta, kept: V) {
        let mut index = self.objects.write();
        let (name, uid) = (metadata.name.as_deref(), metadata.uid.as_ref());
        if uid.is_some_and(|uid| index.gone.contains(uid)) {
            return;
        }
        let entry = Entry::of(metadata, kept);
        let own = index.objects.entry(key.clone()).or_default();
        let name = name.unwrap_or_default().to_owned();
        let is_older = |known: &Entry<V>| known.resource_version > entry.resource_version;
        if !own.get(&name).is_some_and(is_older) {
            own.insert(name, entry);
        }
    }

    /// Takes out a deleted object before the watch reports it.
    pub(crate) fn take(&self, key: &Key, name: &str) {
        take_out(&mut self.objects.write().objects, key, name);
    }

    /// The deployments that have an object of which something holds.
    pub(crate) fn owners_where(&self, holds: impl Fn(&V) -> bool) -> Vec<Key> {
        let objects = &self.objects.read().objects;
        let having = objects
            .iter()
            .filter(|(_, own)| own.values().any(|entry| holds(&entry.kept)));
        having.map(|(key, _)| key.clone()).collect()
    }
}

impl<K> Children<Stored<K>> {
    /// Takes in what an apply answered.
    pub(crate) fn put_metadata(&self, key: &Key, metadata: &ObjectMeta) {
        self.put(key, metadata, Stored::from_metadata(metadata.clone()));
    }
}

// === impl Stored ===

impl<K> Stored<K> {
    fn of(object: PartialObjectMeta<DynamicObject>) -> Self {
        Self::from_metadata(object.metadata)
    }

    fn from_metadata(metadata: ObjectMeta) -> Self {
        let version = version_of(&metadata);
        let ObjectMeta {
            name,
            uid,
            owner_references,
            ..
        } = metadata;
        Self {
            name: name.unwrap_or_default(),
            uid: uid.unwrap_or_default(),
            version,
            owners: owner_references.unwrap_or_default(),
            kind: PhantomData,
        }
    }
}

// === impl Contents ===

impl<V> Default for Contents<V> {
    fn default() -> Self {
        Self {
            objects: Objects::new(),
            gone: VecDeque::new(),
        }
    }
}

impl<V> Contents<V> {
    /// Remembers that an object went, and forgets the oldest.
    fn bury(&mut self, uid: Option<String>) {
        if self.gone.len() == GONE_MAX {
            self.gone.pop_front();
        }
        self.gone.extend(uid);
    }
}

// === impl Entry ===

impl<V> Entry<V> {
    fn of(metadata: &ObjectMeta, kept: V) -> Self {
        Self {
            uid: metadata.uid.clone(),
            version: version_of(metadata),
            resource_version: resource_version(metadata),
            kept: Arc::new(kept),
        }
    }

    /// Whether this is a later state of the same object.
    fn is_newer(&self, than: &Self) -> bool {
        self.uid == than.uid && self.resource_version > than.resource_version
    }
}

fn take_out<V>(objects: &mut Objects<V>, key: &Key, name: &str) {
    if let Some(own) = objects.get_mut(key) {
        own.remove(name);
        if own.is_empty() {
            objects.remove(key);
        }
    }
}

/// The deployment that an object says it belongs to, or the key of what those of its namespace share.
fn owner<K: Resource>(object: &K) -> Option<Key> {
    let namespace = object.namespace().unwrap_or_default();
    match object.labels().get(labels::DEPLOYMENT) {
        Some(name) => Some(Key::new(name).within(&namespace)),
        None => is_shared(object.labels()).then(|| shared_key(&namespace)),
    }
}

/// Whether these are the labels of an object that the deployments of a namespace share.
pub(crate) fn is_shared(labels: &BTreeMap<String, String>) -> bool {
    labels.get(labels::SHARED).is_some_and(|it| it == "true")
}

/// Where the index keeps what the deployments of a namespace share: no deployment is without a name.
pub(crate) fn shared_key(namespace: &str) -> Key {
    Key::new("").within(namespace)
}

#[cfg(test)]
impl<V> Default for Children<V> {
    fn default() -> Self {
        Self {
            objects: Arc::default(),
        }
    }
}

#[cfg(test)]
impl<K: Resource<DynamicType = ()>> FromIterator<K> for Children<K> {
    fn from_iter<I: IntoIterator<Item = K>>(objects: I) -> Self {
        let mut known = Contents::default();
        for object in objects {
            indexer::insert(&mut known.objects, object, |object| object);
        }
        Self {
            objects: Arc::new(RwLock::new(known)),
        }
    }
}

#[cfg(test)]
mod tests;
