//! The objects of every deployment, as the watches last told of them.
//!
//! An apiserver is asked for nothing that a watch tells: a reconcile reads this index. Every object
//! names its deployment by label, so that a change is led to the deployment it belongs to, and
//! looking up one deployment's pods costs the same among three thousand as among three.

use super::context::version_of;
use futures::channel::mpsc;
use futures::{SinkExt, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use parking_lot::RwLock;
use pd_crds::PdDeployment;
use pd_protocol::labels;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Deployments that wait to be reconciled because an object of theirs changed; the watch waits
/// while it is full.
const CHANGED_MAX: usize = 1024;

type Key = ObjectRef<PdDeployment>;
type Objects<K> = HashMap<Key, BTreeMap<String, Arc<K>>>;

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

/// Objects that are only ever applied: whether they are as they were left, their metadata tells.
pub(crate) type Metadata<K> = Children<PartialObjectMeta<K>>;

/// An index of one kind, kept up by a watch.
#[derive(Debug)]
pub(crate) struct Children<K> {
    objects: Arc<RwLock<Objects<K>>>,
}

/// A watch that has begun.
pub(crate) struct Watch<K> {
    pub(crate) children: Children<K>,
    /// Deployments of which an object changed.
    pub(crate) changed: mpsc::Receiver<Key>,
    /// Done when the index is complete for the first time.
    pub(crate) synced: oneshot::Receiver<()>,
}

/// What of an object leads to a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tells {
    Everything,
    /// Not its status, which others or this operator itself write and no decision reads.
    AllButStatus,
}

/// What one event does to an index.
struct Indexer<K> {
    tells: Tells,
    prune: fn(&mut K),
    objects: Arc<RwLock<Objects<K>>>,
    /// Collected between `Init` and `InitDone`, then put in place at once.
    listed: Objects<K>,
}

/// Watches a kind for objects that carry the deployment label. `prune` removes from each what nobody
/// reads: thousands of them are kept.
pub(crate) fn watch<K: Child>(api: Api<K>, tells: Tells, prune: fn(&mut K)) -> Watch<K> {
    let objects = Arc::new(RwLock::new(Objects::new()));
    let mut indexer = Indexer {
        tells,
        prune,
        objects: Arc::clone(&objects),
        listed: Objects::new(),
    };
    let (mut tell, changed) = mpsc::channel(CHANGED_MAX);
    let (tell_synced, synced) = oneshot::channel();
    tokio::spawn(async move {
        let config = watcher::Config::default().labels(labels::DEPLOYMENT);
        let mut events = pin!(watcher(api, config).default_backoff());
        let mut tell_synced = Some(tell_synced);
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    tracing::warn!(%error, kind = %K::kind(&()), "a watch broke off; it begins again");
                    continue;
                }
            };
            let done = matches!(event, Event::InitDone);
            for key in indexer.take(event) {
                tracing::trace!(kind = %K::kind(&()), deployment = %key, "an object changed");
                if tell.send(key).await.is_err() {
                    return;
                }
            }
            if let Some(tell_synced) = tell_synced.take_if(|_| done) {
                // The operator may have stopped waiting because it ends.
                let _ended = tell_synced.send(());
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

impl<K> Children<K> {
    /// The objects of one deployment, by name.
    pub(crate) fn of(&self, deployment: &Key) -> Vec<Arc<K>> {
        let objects = self.objects.read();
        let own = objects.get(deployment);
        own.map(|own| own.values().cloned().collect())
            .unwrap_or_default()
    }

    /// One object of a deployment.
    pub(crate) fn find(&self, deployment: &Key, name: &str) -> Option<Arc<K>> {
        self.objects.read().get(deployment)?.get(name).cloned()
    }

    /// Goes through the objects of all deployments.
    pub(crate) fn each(&self, mut see: impl FnMut(&K)) {
        let objects = self.objects.read();
        let all = objects.values().flat_map(BTreeMap::values);
        all.for_each(|object| see(object));
    }

    /// The deployments that have an object of which something holds.
    pub(crate) fn owners_where(&self, holds: impl Fn(&K) -> bool) -> Vec<Key> {
        let objects = self.objects.read();
        let having = objects
            .iter()
            .filter(|(_, own)| own.values().any(|object| holds(object)));
        having.map(|(key, _)| key.clone()).collect()
    }
}

// === impl Indexer ===

impl<K: Resource<DynamicType = ()> + Clone> Indexer<K> {
    /// Whether all that matters of an object was told before.
    fn is_told(&self, before: &K, now: &K) -> bool {
        self.tells == Tells::AllButStatus && version_of(before.meta()) == version_of(now.meta())
    }

    fn trim(&self, object: &mut K) {
        object.managed_fields_mut().clear();
        (self.prune)(object);
    }

    /// Takes in an event and gives the deployments whose objects it changed.
    fn take(&mut self, event: Event<K>) -> Vec<Key> {
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(mut object) => {
                self.trim(&mut object);
                insert(&mut self.listed, object);
                Vec::new()
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let mut keys: Vec<Key> = listed.keys().cloned().collect();
                let before = std::mem::replace(&mut *self.objects.write(), listed);
                keys.extend(before.into_keys());
                keys
            }
            Event::Apply(mut object) => {
                self.trim(&mut object);
                let mut objects = self.objects.write();
                let before = known(&objects, &object);
                let same = before.is_some_and(|before| self.is_told(before, &object));
                let key = insert(&mut objects, object);
                key.filter(|_| !same).into_iter().collect()
            }
            Event::Delete(object) => remove(&mut self.objects.write(), &object)
                .into_iter()
                .collect(),
        }
    }
}

fn known<'a, K: Resource<DynamicType = ()>>(objects: &'a Objects<K>, object: &K) -> Option<&'a K> {
    let own = objects.get(&owner(object)?)?;
    own.get(&object.name_any()).map(|known| &**known)
}

fn insert<K: Resource<DynamicType = ()>>(objects: &mut Objects<K>, object: K) -> Option<Key> {
    let key = owner(&object)?;
    let own = objects.entry(key.clone()).or_default();
    own.insert(object.name_any(), Arc::new(object));
    Some(key)
}

fn remove<K: Resource<DynamicType = ()>>(objects: &mut Objects<K>, object: &K) -> Option<Key> {
    let key = owner(object)?;
    if let Some(own) = objects.get_mut(&key) {
        own.remove(&object.name_any());
        if own.is_empty() {
            objects.remove(&key);
        }
    }
    Some(key)
}

/// The deployment that an object says it belongs to.
fn owner<K: Resource<DynamicType = ()>>(object: &K) -> Option<Key> {
    let name = object.labels().get(labels::DEPLOYMENT)?;
    let namespace = object.namespace().unwrap_or_default();
    Some(Key::new(name).within(&namespace))
}

#[cfg(test)]
impl<K: Resource<DynamicType = ()>> FromIterator<K> for Children<K> {
    fn from_iter<I: IntoIterator<Item = K>>(objects: I) -> Self {
        let mut known = Objects::new();
        for object in objects {
            insert(&mut known, object);
        }
        Self {
            objects: Arc::new(RwLock::new(known)),
        }
    }
}

#[cfg(test)]
mod tests;
