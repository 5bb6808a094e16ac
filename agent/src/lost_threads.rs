//! Threads that every request depends on and nothing else supervises. A panic there leaves requests that wait for ever
//! behind doors that still say "healthy", so it ends the process, and what supervises it starts another. A panic elsewhere is
//! one request's (`pd-http`), is reported by the one who asked (`pd-cpu`), or fails the KV transfer, whose manager tells.

use std::panic;
use std::thread;
use tokio::sync::mpsc;

/// Hears of each vital thread, or task on one, that panics.
#[derive(Debug)]
pub(crate) struct LostThreads {
    lost_rx: mpsc::UnboundedReceiver<String>,
    /// Keeps the channel open where no hook holds it any more.
    _lost_tx: mpsc::UnboundedSender<String>,
}

// === impl LostThreads ===

impl LostThreads {
    /// Watches threads of these names from now on, beside whatever handles panics already.
    pub(crate) fn watch(vital: &'static [&'static str]) -> Self {
        // Unbounded: the first message ends the process.
        let (lost_tx, lost_rx) = mpsc::unbounded_channel();
        let to_owner = lost_tx.clone();
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            before(panic);
            let thread = thread::current();
            if let Some(name) = thread.name().filter(|name| vital.contains(name)) {
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
