//! Admission: so many requests in flight, so many waiting for a place, and the rest refused at
//! once, so that overload is an answer and not a timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Clone, Debug)]
pub struct QueueConfig {
    /// Requests in flight at most; `None`: no bound.
    pub concurrent_max: Option<usize>,
    pub waiting_max: usize,
    pub wait_max: Duration,
}

#[derive(Debug)]
pub struct Queue {
    places: Option<Arc<Semaphore>>,
    waiting: AtomicUsize,
    config: QueueConfig,
}

/// A place among the requests in flight, given back when dropped.
#[derive(Debug)]
pub struct Place {
    _permit: Option<OwnedSemaphorePermit>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    #[error(
        "the router's queue is full: {waiting} requests wait already; retry after {retry_after_secs} s"
    )]
    Full {
        waiting: usize,
        retry_after_secs: u64,
    },
    #[error("the request waited {waited_secs} s for a place among those in flight; retry later")]
    TimedOut { waited_secs: u64 },
}

/// Counts a waiting request for as long as it waits, also if its client leaves.
struct Waiting<'a>(&'a AtomicUsize);

// === impl Queue ===

impl Queue {
    pub fn new(config: QueueConfig) -> Self {
        let bound = config
            .concurrent_max
            .map(|max| max.min(Semaphore::MAX_PERMITS));
        Self {
            places: bound.map(|max| Arc::new(Semaphore::new(max))),
            waiting: AtomicUsize::new(0),
            config,
        }
    }

    /// # Errors
    /// `Full` at once when too many wait, `TimedOut` after the longest wait.
    pub async fn enter(&self) -> Result<Place, QueueError> {
        let Some(places) = &self.places else {
            return Ok(Place { _permit: None });
        };
        if let Ok(permit) = Arc::clone(places).try_acquire_owned() {
            return Ok(Place {
                _permit: Some(permit),
            });
        }
        let _waiting = Waiting::enter(&self.waiting, self.config.waiting_max)?;
        let acquired = Arc::clone(places).acquire_owned();
        match tokio::time::timeout(self.config.wait_max, acquired).await {
            Ok(permit) => Ok(Place {
                _permit: Some(permit.expect("the queue's semaphore is never closed")),
            }),
            Err(_) => Err(QueueError::TimedOut {
                waited_secs: self.config.wait_max.as_secs(),
            }),
        }
    }

    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

// === impl Waiting ===

impl<'a> Waiting<'a> {
    fn enter(waiting: &'a AtomicUsize, max: usize) -> Result<Self, QueueError> {
        let before = waiting.fetch_add(1, Ordering::Relaxed);
        let entered = Self(waiting);
        if before < max {
            return Ok(entered);
        }
        Err(QueueError::Full {
            waiting: before,
            retry_after_secs: 1,
        })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
