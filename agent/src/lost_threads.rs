//! Threads that every request depends on and nothing else supervises. A panic there would leave
//! requests waiting without end in a process that still reports "healthy", so it ends the process,
//! and the supervisor starts another. A panic elsewhere fails one request (`pd-http`), is reported
//! by the caller (`pd-cpu`), or fails the KV transfer, whose manager reports it.

use std::panic;
use std::thread;
use tokio::sync::mpsc;

/// Receives each panic of a vital thread, or of a task on one.
#[derive(Debug)]
pub(crate) struct LostThreads {
    lost_rx: mpsc::UnboundedReceiver<String>,
    /// Keeps the channel open after the hook is gone.
    _lost_tx: mpsc::UnboundedSender<String>,
}

// === impl LostThreads ===

impl LostThreads {
    /// Watches threads of these names from now on, in addition to the present panic hook.
    pub(crate) fn watch(vital: &'static [&'static str]) -> Self {
        // Unbounded: the first message ends the process.
        let (lost_tx, lost_rx) = mpsc::unbounded_channel();
        let to_owner = lost_tx.clone();
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            before(panic);
            let thread = thread::current();
            if let Some(name) = thread.name().filter(|name| vital.contains(name)) {
                let reason = format!("thread {name} panicked, and its requests are lost: {panic}");
                // If the owner is gone, the process is already ending.
                let _ = to_owner.send(reason);
            }
        }));
        Self {
            lost_rx,
            _lost_tx: lost_tx,
        }
    }

    /// Waits for the next panic, and returns its description.
    pub(crate) async fn next(&mut self) -> String {
        let lost = self.lost_rx.recv().await;
        lost.expect("this value holds a sender")
    }
}

#[cfg(test)]
mod tests;
