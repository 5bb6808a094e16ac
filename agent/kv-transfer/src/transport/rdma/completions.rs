//! A completion queue that tasks can wait for.

#![expect(unsafe_code, reason = "the runtime waits for a file by its number")]

use pd_verbs::{CallError, Completion, CompletionQueue, Device};
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Completions taken at once.
const BATCH: usize = 64;

pub(crate) struct Completions {
    pub(crate) queue: CompletionQueue,
    events: AsyncFd<OwnedFd>,
}

/// Why there are no completions to wait for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompletionsError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("cannot wait for completions: {0}")]
    Wait(#[from] io::Error),
}

// === impl Completions ===

impl Completions {
    /// A queue of `depth` entries, within a runtime.
    pub(crate) fn new(device: &Device, depth: u32) -> Result<Self, CompletionsError> {
        let queue = CompletionQueue::with_events(device, depth)?;
        let file = queue.events_file().expect("the queue was made with events");
        let file = file.try_clone_to_owned()?;
        // SAFETY: the runtime owns this file, so it stays open and the same until it is waited for no more.
        let events = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
        let events = events.map_err(io::Error::from)?;
        Ok(Self { queue, events })
    }

    /// Waits until there is a completion, and takes what is there.
    pub(crate) async fn next(&self) -> Result<Vec<Completion>, CompletionsError> {
        let mut taken = Vec::new();
        loop {
            self.queue.poll(&mut taken, BATCH)?;
            if taken.is_empty() {
                // One that came in between makes no event.
                self.queue.arm()?;
                self.queue.poll(&mut taken, BATCH)?;
            }
            if !taken.is_empty() {
                return Ok(taken);
            }
            let mut ready = self.events.readable().await?;
            self.queue.take_events()?;
            ready.clear_ready();
        }
    }
}
