//! Admission: so many requests in flight, so many waiting, and the rest refused at once, so that
//! overload is an answer and not a timeout. A request waits for a place among those in flight, or
//! for a worker where a pool has none for a moment; both count alike.

mod limit;
mod patience;

pub use limit::{ConcurrencyLimit, LimitError};
pub use patience::Patience;

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bound of a router that bounds nothing.
const UNBOUNDED: usize = Semaphore::MAX_PERMITS;

#[derive(Clone, Debug)]
pub struct QueueConfig {
    pub limit: ConcurrencyLimit,
    pub waiting_max: usize,
    /// How long a request waits at most.
    pub wait_max: Duration,
    /// How much of that for a worker.
    pub no_worker_max: Duration,
}

#[derive(Debug)]
pub struct Queue {
    places: Arc<Places>,
    waiting: AtomicUsize,
    config: QueueConfig,
}

#[derive(Debug)]
struct Places {
    /// Its permits are the free places.
    free: Arc<Semaphore>,
    bound: AtomicUsize,
    /// Places that were taken away while they were held: they end when they are given back.
    owed: Mutex<usize>,
    held: AtomicUsize,
}

/// A place among the requests in flight, given back when dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    permit: Option<OwnedSemaphorePermit>,
}

/// Counts a waiting request for as long as it waits, also if its client leaves.
#[derive(Debug)]
pub struct Waiting<'a>(&'a AtomicUsize);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    #[error("the router's queue is full: {waiting} requests wait already; retry later")]
    Full { waiting: usize },
    #[error("the request waited {waited_secs} s for a place among those in flight; retry later")]
    TimedOut { waited_secs: u64 },
}

// === impl Queue ===

impl Queue {
    pub fn new(config: QueueConfig) -> Self {
        let bound = config.limit.bound(0);
        Self {
            places: Arc::new(Places {
                free: Arc::new(Semaphore::new(bound)),
                bound: AtomicUsize::new(bound),
                owed: Mutex::new(0),
                held: AtomicUsize::new(0),
            }),
            waiting: AtomicUsize::new(0),
            config,
        }
    }

    /// Makes the bound what the limit says for a fleet that runs `running_max` requests at once; it is
    /// asked again under the lock, so that the latest fleet counts.
    pub fn fit(&self, running_max: impl Fn() -> usize) {
        let bound = || self.config.limit.bound(running_max());
        if bound() != self.places.bound.load(Ordering::Relaxed) {
            self.places.fit(bound);
        }
    }

    /// A place that is free, unless others wait for it.
    pub fn try_enter(&self) -> Option<Place> {
        let permit = Arc::clone(&self.places.free).try_acquire_owned().ok()?;
        Some(Place::new(&self.places, permit))
    }

    /// Waits for a place, in the order of those who do.
    pub async fn enter(&self) -> Place {
        let permit = Arc::clone(&self.places.free).acquire_owned().await;
        let permit = permit.expect("the queue's semaphore is never closed");
        Place::new(&self.places, permit)
    }

    /// Counts as waiting for as long as the result is held.
    ///
    /// # Errors
    /// `Full` when too many wait.
    pub fn wait(&self) -> Result<Waiting<'_>, QueueError> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(&self.waiting);
        match before < self.config.waiting_max {
            true => Ok(waiting),
            false => Err(QueueError::Full { waiting: before }),
        }
    }

    /// What one request may wait, over all its attempts.
    pub fn patience(&self) -> Patience {
        Patience::new(&self.config)
    }

    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Requests in flight now.
    pub fn in_flight(&self) -> usize {
        self.places.held.load(Ordering::Relaxed)
    }

    /// Requests in flight at most; `None`: no bound.
    pub fn in_flight_max(&self) -> Option<usize> {
        let bound = self.places.bound.load(Ordering::Relaxed);
        (bound < UNBOUNDED).then_some(bound)
    }
}

// === impl Places ===

impl Places {
    fn fit(&self, bound: impl Fn() -> usize) {
        let mut owed = self.owed.lock();
        let bound = bound();
        let before = self.bound.swap(bound, Ordering::Relaxed);
        if bound < before {
            let shrunk = before - bound;
            *owed += shrunk - self.free.forget_permits(shrunk);
        } else {
            let grown = bound - before;
            let settled = grown.min(*owed);
            *owed -= settled;
            self.free.add_permits(grown - settled);
        }
    }
}

// === impl Place ===

impl Place {
    fn new(places: &Arc<Places>, permit: OwnedSemaphorePermit) -> Self {
        places.held.fetch_add(1, Ordering::Relaxed);
        Self {
            places: Arc::clone(places),
            permit: Some(permit),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.held.fetch_sub(1, Ordering::Relaxed);
        let mut owed = self.places.owed.lock();
        if let (1.., Some(permit)) = (*owed, self.permit.take()) {
            *owed -= 1;
            permit.forget();
        }
    }
}

// === impl Waiting ===

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
