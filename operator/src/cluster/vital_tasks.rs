//! Tasks that never end and that everything depends on: watches, which keep the indexes true, and the listener. If one
//! is lost, the operator would go on deciding by what was, and say that it is well; so it ends the process, and what
//! supervises that starts another.

use futures::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::watch;

/// Spawns them and reports the first that is lost; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct VitalTasks {
    lost: Arc<watch::Sender<Option<&'static str>>>,
}

// === impl VitalTasks ===

impl VitalTasks {
    pub(crate) fn new() -> Self {
        Self {
            lost: Arc::new(watch::Sender::new(None)),
        }
    }

    pub(crate) fn spawn(&self, name: &'static str, task: impl Future + Send + 'static) {
        let lost = Arc::clone(&self.lost);
        tokio::spawn(async move {
            // The hook has reported a panic.
            let _ended = AssertUnwindSafe(task.map(drop)).catch_unwind().await;
            lost.send_if_modified(|lost| lost.replace(name).is_none());
        });
    }

    /// Waits until one is lost, and names it.
    pub(crate) async fn lost(&self) -> &'static str {
        let mut lost = self.lost.subscribe();
        let lost = lost.wait_for(Option::is_some).await;
        let lost = lost.expect("this value holds the sender");
        lost.expect("it was waited for")
    }
}

#[cfg(test)]
mod tests;
