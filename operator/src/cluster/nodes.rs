//! Which nodes are to be emptied and which are lost, and when there came more room, as their watch
//! tells.
//!
//! An operator that may not read nodes does without: a worker of a cordoned node then leaves when it
//! is evicted, and one of a lost node when Kubernetes deletes it.

use futures::StreamExt;
use futures::channel::mpsc;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use parking_lot::RwLock;
use pd_crds::place::{Place, place_of};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::oneshot;
use tokio::time::Instant;

#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    known: Arc<RwLock<Known>>,
    /// The nodes could be listed.
    sees: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Known {
    /// Of nodes with pods that do not stay; others are not listed.
    places: HashMap<String, Place>,
    /// What pods may take of a node.
    room: HashMap<String, Room>,
    room_came: Option<Instant>,
    /// Deleted nodes, oldest first, whose pods may still be there.
    gone: VecDeque<String>,
    /// Names of a list that is under way: a node that it lacks was deleted while nobody watched.
    listed: HashSet<String>,
}

/// Deleted nodes that are remembered; Kubernetes deletes their pods within a minute or two.
const GONE_MAX: usize = 1024;

type Room = BTreeMap<String, Quantity>;

// === impl Nodes ===

impl Nodes {
    /// Watches the nodes. The channel is told the name of each whose place changed; the other, once,
    /// that they were listed or that this was refused.
    pub(crate) fn watch(
        client: Client,
    ) -> (Self, mpsc::UnboundedReceiver<String>, oneshot::Receiver<()>) {
        let nodes = Self::default();
        let (tell, changed) = mpsc::unbounded();
        let (tell_heard, heard) = oneshot::channel();
        let known = nodes.clone();
        tokio::spawn(async move {
            let events = watcher(Api::<Node>::all(client), watcher::Config::default());
            let mut events = pin!(events.default_backoff());
            let mut is_told = false;
            let mut tell_heard = Some(tell_heard);
            while let Some(event) = events.next().await {
                let answered = matches!(event, Ok(Event::InitDone) | Err(_));
                match event {
                    Ok(event) => known.take(event, &tell),
                    Err(error) if !is_told => {
                        is_told = true;
                        tracing::warn!(%error, "nodes cannot be watched: workers are not moved off cordoned or lost nodes");
                    }
                    Err(error) => tracing::debug!(%error, "nodes cannot be watched"),
                }
                if let Some(tell_heard) = tell_heard.take_if(|_| answered) {
                    // The operator may be about to end.
                    let _ended = tell_heard.send(());
                }
            }
        });
        (nodes, changed, heard)
    }

    /// What becomes of a node; one that was never seen stays.
    pub(crate) fn place(&self, node: &str) -> Place {
        let known = self.known.read();
        known.places.get(node).copied().unwrap_or_default()
    }

    /// When a node last came, came back, or had more or other things to give.
    pub(crate) fn room_came(&self) -> Option<Instant> {
        self.known.read().room_came
    }

    /// Whether workers are moved off nodes that are to be emptied.
    pub(crate) fn sees(&self) -> bool {
        self.sees.load(Ordering::Relaxed)
    }

    fn take(&self, event: Event<Node>, tell: &mpsc::UnboundedSender<String>) {
        if let Event::InitApply(node) = &event {
            self.known.write().listed.insert(node.name_any());
        }
        let (name, place, room) = match event {
            Event::Apply(node) | Event::InitApply(node) => {
                let (name, place) = (node.name_any(), place_of(&node));
                let room = node.status.and_then(|status| status.allocatable);
                (name, place, Some(room.unwrap_or_default()))
            }
            Event::Delete(node) => (node.name_any(), Place::Lost, None),
            Event::InitDone => {
                // The lock is given back before each is taken in.
                let missed = self.known.write().missed();
                for name in missed {
                    self.put(&name, Place::Lost, None, tell);
                }
                self.sees.store(true, Ordering::Relaxed);
                return;
            }
            Event::Init => {
                self.known.write().listed.clear();
                return;
            }
        };
        self.put(&name, place, room, tell);
    }

    fn put(
        &self,
        name: &str,
        place: Place,
        room: Option<Room>,
        tell: &mpsc::UnboundedSender<String>,
    ) {
        if self.known.write().take(name, place, room) {
            tracing::info!(node = name, ?place, "a node changed");
            // The operator may be about to end.
            let _ended = tell.unbounded_send(name.to_owned());
        }
    }
}

// === impl Known ===

impl Known {
    /// Nodes that were there before and are not in the list that has ended.
    fn missed(&mut self) -> Vec<String> {
        let listed = std::mem::take(&mut self.listed);
        let known = self.room.keys();
        known
            .filter(|name| !listed.contains(*name))
            .cloned()
            .collect()
    }

    /// Says whether the place has changed.
    fn take(&mut self, name: &str, place: Place, room: Option<Room>) -> bool {
        let before = match place {
            Place::Stays => self.places.remove(name),
            Place::Emptied | Place::Lost => self.places.insert(name.to_owned(), place),
        };
        let has_moved = before.unwrap_or_default() != place;
        let has_room = room.is_some();
        let had = match room {
            Some(room) => self.room.insert(name.to_owned(), room.clone()) == Some(room),
            None => {
                self.gone.push_back(name.to_owned());
                self.room.remove(name).is_some()
            }
        };
        while self.gone.len() > GONE_MAX {
            let oldest = self.gone.pop_front().unwrap_or_default();
            if !self.room.contains_key(&oldest) {
                self.places.remove(&oldest);
            }
        }
        if place == Place::Stays && has_room && (has_moved || !had) {
            self.room_came = Some(Instant::now());
        }
        has_moved
    }
}

#[cfg(test)]
mod tests {
    //! Facts about nodes.

    use super::*;
    use serde_json::{Value, json};

    fn mk_node(spec: Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": spec})).expect("a Node")
    }

    #[test]
    fn a_change_is_told_once() {
        let (tell, mut changed) = mpsc::unbounded();
        let nodes = Nodes::default();
        let cordoned = || Event::Apply(mk_node(json!({"unschedulable": true})));
        nodes.take(cordoned(), &tell);
        nodes.take(cordoned(), &tell);
        assert_eq!(nodes.place("n"), Place::Emptied);
        assert_eq!(nodes.place("other"), Place::Stays);
        nodes.take(Event::Apply(mk_node(json!({}))), &tell);
        nodes.take(Event::Apply(mk_node(json!({}))), &tell);
        assert_eq!(nodes.place("n"), Place::Stays);
        drop(tell);
        let told = std::iter::from_fn(|| changed.try_recv().ok());
        assert_eq!(told.collect::<Vec<_>>(), ["n", "n"]);
    }

    #[test]
    fn a_node_that_went_while_nobody_watched_is_lost() {
        let (tell, mut changed) = mpsc::unbounded();
        let nodes = Nodes::default();
        nodes.take(Event::Apply(mk_node(json!({}))), &tell);
        nodes.take(Event::Init, &tell);
        nodes.take(Event::InitDone, &tell);
        assert_eq!(nodes.place("n"), Place::Lost);
        assert_eq!(changed.try_recv().ok(), Some("n".to_owned()));
    }

    #[test]
    fn deleted_nodes_are_forgotten_in_time() {
        let (tell, _changed) = mpsc::unbounded();
        let nodes = Nodes::default();
        for nr in 0..GONE_MAX + 2 {
            let node = json!({"metadata": {"name": nr.to_string()}});
            let node: Node = serde_json::from_value(node).expect("a Node");
            nodes.take(Event::Apply(node.clone()), &tell);
            nodes.take(Event::Delete(node), &tell);
        }
        assert_eq!(nodes.known.read().places.len(), GONE_MAX);
        assert_eq!(nodes.place("2"), Place::Lost);
    }

    #[test]
    fn room_comes_with_nodes_that_are_new_come_back_or_grow() {
        let (tell, _changed) = mpsc::unbounded();
        let nodes = Nodes::default();
        let mk = |gpus: &str, cordoned: bool| {
            let node = json!({
                "metadata": {"name": "n"}, "spec": {"unschedulable": cordoned},
                "status": {"allocatable": {"nvidia.com/gpu": gpus}},
            });
            Event::Apply(serde_json::from_value(node).expect("a Node"))
        };
        let brings_room = |event: Event<Node>| {
            let before = nodes.room_came();
            nodes.take(event, &tell);
            nodes.room_came() != before
        };
        let steps = [
            (mk("8", false), true),
            (mk("8", false), false),
            (mk("8", true), false),
            (mk("8", false), true),
            (mk("16", false), true),
            (Event::Delete(mk_node(json!({}))), false),
            (mk("16", false), true),
        ];
        for (nr, (event, expected)) in steps.into_iter().enumerate() {
            assert_eq!(brings_room(event), expected, "step {nr}");
        }
    }
}
