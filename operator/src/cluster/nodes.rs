//! Which nodes are to be emptied and which are lost, as their watch tells.
//!
//! An operator that may not read nodes does without: a worker of a cordoned node then leaves when it
//! is evicted, and one of a lost node when Kubernetes deletes it.

use futures::StreamExt;
use futures::channel::mpsc;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use parking_lot::RwLock;
use pd_crds::place::{Place, place_of};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::oneshot;

/// Nodes with pods that do not stay; others are not listed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    places: Arc<RwLock<HashMap<String, Place>>>,
    /// The nodes could be listed.
    sees: Arc<AtomicBool>,
}

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
        let places = self.places.read();
        places.get(node).copied().unwrap_or_default()
    }

    /// Whether workers are moved off nodes that are to be emptied.
    pub(crate) fn sees(&self) -> bool {
        self.sees.load(Ordering::Relaxed)
    }

    fn take(&self, event: Event<Node>, tell: &mpsc::UnboundedSender<String>) {
        let (name, place) = match event {
            Event::Apply(node) | Event::InitApply(node) => (node.name_any(), place_of(&node)),
            Event::Delete(node) => (node.name_any(), Place::Lost),
            Event::InitDone => {
                self.sees.store(true, Ordering::Relaxed);
                return;
            }
            Event::Init => return,
        };
        let before = match place {
            Place::Stays => self.places.write().remove(&name).unwrap_or_default(),
            Place::Emptied | Place::Lost => {
                let before = self.places.write().insert(name.clone(), place);
                before.unwrap_or_default()
            }
        };
        if before != place {
            tracing::info!(node = name, ?place, "a node changed");
            // The operator may be about to end.
            let _ended = tell.unbounded_send(name);
        }
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
}
