//! What the events of a watch do to an index.

use super::{Contents, Entry, Key, NotifyOf, Objects, Own, owner, take_out};
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use parking_lot::RwLock;
use std::sync::Arc;

/// What one event does to an index.
pub(super) struct Indexer<K, V> {
    pub(super) notify: NotifyOf,
    pub(super) keep: fn(K) -> V,
    pub(super) objects: Arc<RwLock<Contents<V>>>,
    /// Collected between `Init` and `InitDone`, then put in place at once.
    pub(super) listed: Objects<V>,
}

// === impl Indexer ===

impl<K: Resource, V> Indexer<K, V> {
    /// Takes in an event and gives the deployments whose objects it changed.
    pub(super) fn take(&mut self, event: Event<K>) -> Vec<Key> {
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                insert(&mut self.listed, object, self.keep);
                Vec::new()
            }
            Event::InitDone => {
                let mut listed = std::mem::take(&mut self.listed);
                let mut keys: Vec<Key> = listed.keys().cloned().collect();
                let mut index = self.objects.write();
                for (key, own) in &mut index.objects {
                    keep_newer(own, listed.get_mut(key));
                }
                let before = std::mem::replace(&mut index.objects, listed);
                keys.extend(before.into_keys());
                keys
            }
            Event::Apply(object) => {
                let inserted = insert(&mut self.objects.write().objects, object, self.keep);
                let news =
                    inserted.filter(|(_, changed)| *changed || self.notify == NotifyOf::Everything);
                news.map(|(key, _)| key).into_iter().collect()
            }
            Event::Delete(object) => {
                let mut index = self.objects.write();
                index.bury(object.uid());
                let key = remove(&mut index.objects, &object);
                key.into_iter().collect()
            }
        }
    }
}

/// Keeps what a write answered while a list was under way.
fn keep_newer<V>(known: &mut Own<V>, listed: Option<&mut Own<V>>) {
    for (name, listed) in listed.into_iter().flatten() {
        if let Some(known) = known.get_mut(name).filter(|known| known.is_newer(listed)) {
            std::mem::swap(known, listed);
        }
    }
}

/// Puts an object under its deployment, unless a write answered with a newer state of it; says whether more than its
/// status changed.
pub(super) fn insert<K: Resource, V>(
    objects: &mut Objects<V>,
    mut object: K,
    keep: fn(K) -> V,
) -> Option<(Key, bool)> {
    let key = owner(&object)?;
    let own = objects.entry(key.clone()).or_default();
    object.managed_fields_mut().clear();
    let (name, metadata) = (object.name_any(), object.meta().clone());
    let entry = Entry::of(&metadata, keep(object));
    let version = entry.version;
    if own.get(&name).is_some_and(|known| known.is_newer(&entry)) {
        return Some((key, false));
    }
    let before = own.insert(name, entry);
    Some((key, before.is_none_or(|before| before.version != version)))
}

fn remove<K: Resource, V>(objects: &mut Objects<V>, object: &K) -> Option<Key> {
    let key = owner(object)?;
    take_out(objects, &key, &object.name_any());
    Some(key)
}
