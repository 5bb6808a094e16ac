//! Which nodes to evacuate and which are lost, and when nodes gained room, from their watch.
//!
//! An operator that may not read nodes does without: a worker of a cordoned node then leaves when it
//! is evicted, and one of a lost node when Kubernetes deletes it.

mod changed;

use super::vital_tasks::VitalTasks;
use changed::ChangedNodes;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use parking_lot::RwLock;
use pd_crds::gpus::gpus_of;
use pd_crds::node_disposition::{NodeDisposition, node_disposition};
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
    is_watched: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Known {
    /// Of nodes with pods that do not stay; others are not listed.
    dispositions: HashMap<String, NodeDisposition>,
    /// What pods may take of a node.
    room: HashMap<String, Room>,
    room_came: Option<Instant>,
    /// Deleted nodes, oldest first, whose pods may still be there.
    gone: VecDeque<String>,
    /// Names of a list that is under way: a node that it lacks was deleted while no watch ran.
    listed: HashSet<String>,
}

/// Deleted nodes that are remembered; Kubernetes deletes their pods within a minute or two.
const GONE_MAX: usize = 1024;

type Room = BTreeMap<String, Quantity>;

// === impl Nodes ===

impl Nodes {
    /// Watches the nodes. The queue yields those whose disposition changed, the channel, once, that they were
    /// listed or that this was refused.
    pub(crate) fn watch(
        client: Client,
        vital: &VitalTasks,
    ) -> (Self, ChangedNodes, oneshot::Receiver<()>) {
        let nodes = Self::default();
        let changed = ChangedNodes::default();
        let changes = changed.clone();
        let (heard_tx, heard) = oneshot::channel();
        let known = nodes.clone();
        vital.spawn("watch of nodes", async move {
            let events = watcher(Api::<Node>::all(client), watcher::Config::default());
            let mut events = pin!(events.default_backoff());
            let mut is_logged = false;
            let mut heard_tx = Some(heard_tx);
            while let Some(event) = events.next().await {
                let answered = matches!(event, Ok(Event::InitDone) | Err(_));
                match event {
                    Ok(event) => known.take(event, &changes),
                    Err(error) if !is_logged => {
                        is_logged = true;
                        tracing::warn!(%error, "not permitted to watch nodes; workers stay on cordoned and lost nodes");
                    }
                    Err(error) => tracing::debug!(%error, "cannot watch nodes"),
                }
                if let Some(heard_tx) = heard_tx.take_if(|_| answered) {
                    // The operator may be about to end.
                    let _ended = heard_tx.send(());
                }
            }
        });
        (nodes, changed, heard)
    }

    /// What becomes of a node; one that was never seen stays.
    pub(crate) fn disposition(&self, node: &str) -> NodeDisposition {
        let known = self.known.read();
        known.dispositions.get(node).copied().unwrap_or_default()
    }

    /// When a node last came, came back, or had more or other things to give.
    pub(crate) fn room_came(&self) -> Option<Instant> {
        self.known.read().room_came
    }

    /// GPUs of all nodes; nothing while nodes are not watched.
    pub(crate) fn gpus(&self) -> Option<i64> {
        let known = self.known.read();
        let gpus = known.room.values().map(gpus_of);
        self.is_watched().then(|| gpus.fold(0, i64::saturating_add))
    }

    /// Whether workers are moved off nodes that are to be emptied.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    /// A new node comes.
    #[cfg(test)]
    pub(crate) fn come(&self, name: &str) {
        let mut node = Node::default();
        node.metadata.name = Some(name.to_owned());
        self.take(Event::Apply(node), &ChangedNodes::default());
    }

    fn take(&self, event: Event<Node>, changed: &ChangedNodes) {
        if let Event::InitApply(node) = &event {
            self.known.write().listed.insert(node.name_any());
        }
        let (name, disposition, room) = match event {
            Event::Apply(node) | Event::InitApply(node) => {
                let (name, disposition) = (node.name_any(), node_disposition(&node));
                let room = node.status.and_then(|status| status.allocatable);
                (name, disposition, Some(room.unwrap_or_default()))
            }
            Event::Delete(node) => (node.name_any(), NodeDisposition::Lost, None),
            Event::InitDone => {
                // The lock is given back before each is taken in.
                let missed = self.known.write().missed();
                for name in missed {
                    self.put(&name, NodeDisposition::Lost, None, changed);
                }
                self.is_watched.store(true, Ordering::Relaxed);
                return;
            }
            Event::Init => {
                self.known.write().listed.clear();
                return;
            }
        };
        self.put(&name, disposition, room, changed);
    }

    fn put(
        &self,
        name: &str,
        disposition: NodeDisposition,
        room: Option<Room>,
        changed: &ChangedNodes,
    ) {
        if self.known.write().take(name, disposition, room) {
            tracing::info!(node = name, ?disposition, "node changed");
            changed.add(name);
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

    /// Says whether the disposition has changed.
    fn take(&mut self, name: &str, disposition: NodeDisposition, room: Option<Room>) -> bool {
        let before = match disposition {
            NodeDisposition::Keep => self.dispositions.remove(name),
            NodeDisposition::Evacuate | NodeDisposition::Lost => {
                self.dispositions.insert(name.to_owned(), disposition)
            }
        };
        let has_moved = before.unwrap_or_default() != disposition;
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
                self.dispositions.remove(&oldest);
            }
        }
        if disposition == NodeDisposition::Keep && has_room && (has_moved || !had) {
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
    fn a_change_notifies_once() {
        let changed = ChangedNodes::default();
        let nodes = Nodes::default();
        let cordoned = || Event::Apply(mk_node(json!({"unschedulable": true})));
        nodes.take(cordoned(), &changed);
        nodes.take(cordoned(), &changed);
        assert_eq!(
            (changed.take().as_deref(), changed.take()),
            (Some("n"), None)
        );
        assert_eq!(nodes.disposition("n"), NodeDisposition::Evacuate);
        assert_eq!(nodes.disposition("other"), NodeDisposition::Keep);
        nodes.take(Event::Apply(mk_node(json!({}))), &changed);
        nodes.take(Event::Apply(mk_node(json!({}))), &changed);
        assert_eq!(nodes.disposition("n"), NodeDisposition::Keep);
        assert_eq!(
            (changed.take().as_deref(), changed.take()),
            (Some("n"), None)
        );
    }

    #[test]
    fn a_node_that_went_while_no_watch_ran_is_lost() {
        let changed = ChangedNodes::default();
        let nodes = Nodes::default();
        nodes.take(Event::Apply(mk_node(json!({}))), &changed);
        nodes.take(Event::Init, &changed);
        nodes.take(Event::InitDone, &changed);
        assert_eq!(nodes.disposition("n"), NodeDisposition::Lost);
        assert_eq!(changed.take().as_deref(), Some("n"));
    }

    #[test]
    fn deleted_nodes_are_forgotten_in_time() {
        let changed = ChangedNodes::default();
        let nodes = Nodes::default();
        for nr in 0..GONE_MAX + 2 {
            let node = json!({"metadata": {"name": nr.to_string()}});
            let node: Node = serde_json::from_value(node).expect("a Node");
            nodes.take(Event::Apply(node.clone()), &changed);
            nodes.take(Event::Delete(node), &changed);
        }
        assert_eq!(nodes.known.read().dispositions.len(), GONE_MAX);
        assert_eq!(nodes.disposition("2"), NodeDisposition::Lost);
    }

    #[test]
    fn room_comes_with_nodes_that_are_new_come_back_or_grow() {
        let changed = ChangedNodes::default();
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
            nodes.take(event, &changed);
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
