//! A scheduler that takes its turns where its owner lets it, such as in a simulation, instead of on its own thread.

use crate::event_loop::EventLoop;
pub use crate::event_loop::Turn;
use std::fmt;
use std::sync::Arc;
use tokio::sync::Notify;

/// See [`Engine::start_by_turns`](super::Engine::start_by_turns).
pub struct Scheduler {
    event_loop: EventLoop,
    sent: Arc<Notify>,
}

// === impl Scheduler ===

impl Scheduler {
    pub(super) fn new(event_loop: EventLoop, sent: Arc<Notify>) -> Self {
        Self { event_loop, sent }
    }

    /// Does what there is to do, and waits for nothing but the device.
    pub fn turn(&mut self) -> Turn {
        self.event_loop.turn()
    }

    /// Waits for a command since the last turn. An idle engine with requests takes a turn every 100 ms, too.
    pub async fn commanded(&mut self) {
        self.sent.notified().await;
    }

    /// Takes turns until the engine has ended.
    pub(super) fn run(self) {
        self.event_loop.run();
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").finish_non_exhaustive()
    }
}
