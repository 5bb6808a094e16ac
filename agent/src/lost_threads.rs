//! Threads that every request depends on: the scheduler's and those of the KV transfer. A panic there
//! leaves requests that wait for ever behind doors that still say "healthy", so it ends the process,
//! and what supervises it starts another. A panic elsewhere is one request's (`pd-http`), or is
//! reported by the one who asked (`pd-cpu`).

use std::panic;
use std::thread;
use tokio::sync::mpsc;

/// Names that `pd-engine` and `pd-kv-transfer` give their threads.
const VITAL: [&str; 2] = ["pd-scheduler", "pd-kv-transfer"];

/// Hears of each vital thread, or task on one, that panics.
#[derive(Debug)]
pub(crate) struct LostThreads {
    lost_rx: mpsc::UnboundedReceiver<String>,
    /// Keeps the channel open where no hook holds it any more.
    _lost_tx: mpsc::UnboundedSender<String>,
}

// === impl LostThreads ===

impl LostThreads {
    /// Watches from now on, beside whatever handles panics already.
    pub(crate) fn watch() -> Self {
        // Unbounded: the first message ends the process.
        let (lost_tx, lost_rx) = mpsc::unbounded_channel();
        let to_owner = lost_tx.clone();
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            before(panic);
            let thread = thread::current();
            if let Some(name) = thread.name().filter(|name| VITAL.contains(name)) {
                let reason = format!("thread {name} is lost, and requests with it: {panic}");
                // An owner that is gone ends the process already.
                let _ = to_owner.send(reason);
            }
        }));
        Self {
            lost_rx,
            _lost_tx: lost_tx,
        }
    }

    /// Waits for the next loss, and says which and why.
    pub(crate) async fn next(&mut self) -> String {
        let lost = self.lost_rx.recv().await;
        lost.expect("this value holds a sender")
    }
}

#[cfg(test)]
mod tests;
