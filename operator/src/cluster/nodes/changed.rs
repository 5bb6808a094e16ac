//! The nodes whose pods need another reconcile. A node waits once, however often it changes, so the queue is
//! bounded by the number of nodes, and none is lost: the reader finds the newest disposition in the index.

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::Notify;

/// Clones share the queue.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChangedNodes {
    queue: Arc<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<BTreeSet<String>>,
    arrived: Notify,
}

// === impl ChangedNodes ===

impl ChangedNodes {
    pub(super) fn add(&self, node: &str) {
        self.queue.waiting.lock().insert(node.to_owned());
        self.queue.arrived.notify_one();
    }

    async fn next(&self) -> String {
        loop {
            if let Some(node) = self.take() {
                return node;
            }
            self.queue.arrived.notified().await;
        }
    }

    pub(super) fn take(&self) -> Option<String> {
        self.queue.waiting.lock().pop_first()
    }

    /// For one reader; it never ends.
    pub(crate) fn into_stream(self) -> BoxStream<'static, String> {
        let next = |changed: Self| async move {
            let node = changed.next().await;
            Some((node, changed))
        };
        stream::unfold(self, next).boxed()
    }
}

#[cfg(test)]
mod tests {
    //! Facts about the queue.

    use super::*;

    #[tokio::test]
    async fn a_burst_waits_once_for_each_node_and_none_is_lost() {
        let changed = ChangedNodes::default();
        for nr in 0..30_000 {
            changed.add(&format!("node-{}", nr % 3));
        }
        let late = changed.clone();
        let mut nodes = changed.into_stream();
        for expected in ["node-0", "node-1", "node-2"] {
            assert_eq!(nodes.next().await.as_deref(), Some(expected));
        }
        assert_eq!(late.take(), None);
        let (came, ()) = tokio::join!(nodes.next(), async { late.add("node-1") });
        assert_eq!(came.as_deref(), Some("node-1"));
    }
}
