//! Admission: so many requests in flight, so many waiting, and the rest refused at once, so that
//! overload is an answer and not a timeout. A request waits for a permit to be in flight, or for a
//! worker where a pool has none for a moment; both count alike.

mod limit;
mod wait_budget;

pub(crate) use limit::ConcurrencyLimit;
pub(crate) use wait_budget::WaitBudget;

use limit::UNBOUNDED;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Clone, Debug)]
pub(crate) struct QueueConfig {
    pub(crate) limit: ConcurrencyLimit,
    pub(crate) waiting_max: usize,
    /// How long a request waits at most.
    pub(crate) wait_max: Duration,
    /// How much of that for a worker.
    pub(crate) no_worker_max: Duration,
}

#[derive(Debug)]
pub(crate) struct Queue {
    permits: Arc<Permits>,
    waiting: AtomicUsize,
    /// No permit is given.
    is_paused: AtomicBool,
    config: QueueConfig,
}

#[derive(Debug)]
struct Permits {
    free: Arc<Semaphore>,
    bound: AtomicUsize,
    /// Permits that were taken away while they were held: they end when they are given back.
    owed: Mutex<usize>,
    held: AtomicUsize,
}

/// The right to be in flight, given back when dropped.
#[derive(Debug)]
pub(crate) struct AdmissionPermit {
    permits: Arc<Permits>,
    permit: Option<OwnedSemaphorePermit>,
}

/// Counts a waiting request for as long as it waits, also if its client leaves.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QueueError {
    #[error("the router's queue is full: {waiting} requests wait already; retry later")]
    Full { waiting: usize },
    #[error("the request waited {waited_secs} s for a place among those in flight; retry later")]
    TimedOut { waited_secs: u64 },
}

// === impl Queue ===

impl Queue {
    pub(crate) fn new(config: QueueConfig) -> Self {
        let bound = config.limit.bound(0);
        Self {
            permits: Arc::new(Permits {
                free: Arc::new(Semaphore::new(bound)),
                bound: AtomicUsize::new(bound),
                owed: Mutex::new(0),
                held: AtomicUsize::new(0),
            }),
            waiting: AtomicUsize::new(0),
            is_paused: AtomicBool::new(false),
            config,
        }
    }

    /// Makes the bound what the limit says for a fleet that runs `running_max` requests at once; it
    /// is asked again under the lock, so that the latest fleet counts.
    pub(crate) fn resize(&self, running_max: impl Fn() -> usize) {
        let bound = || {
            if self.is_paused.load(Ordering::Relaxed) {
                0
            } else {
                self.config.limit.bound(running_max())
            }
        };
        if bound() != self.permits.bound.load(Ordering::Relaxed) {
            self.permits.resize(bound);
        }
    }

    /// Gives no permit from the next [`Self::resize`] on, or as many as the limit says again.
    pub(crate) fn set_paused(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// A permit that is free, unless others wait for it.
    pub(crate) fn try_acquire(&self) -> Option<AdmissionPermit> {
        let permit = Arc::clone(&self.permits.free).try_acquire_owned().ok()?;
        Some(AdmissionPermit::new(&self.permits, permit))
    }

    /// Waits for a permit, in the order of those who do.
    pub(crate) async fn acquire(&self) -> AdmissionPermit {
        let permit = Arc::clone(&self.permits.free).acquire_owned().await;
        let permit = permit.expect("the queue's semaphore is never closed");
        AdmissionPermit::new(&self.permits, permit)
    }

    /// Counts a request as waiting for as long as the result is held.
    ///
    /// # Errors
    /// `Full` when too many wait.
    pub(crate) fn count_waiting(&self) -> Result<Waiting<'_>, QueueError> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(&self.waiting);
        if before < self.config.waiting_max {
            Ok(waiting)
        } else {
            Err(QueueError::Full { waiting: before })
        }
    }

    /// What one request may wait, over all its attempts.
    pub(crate) fn budget(&self) -> WaitBudget {
        WaitBudget::new(&self.config)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Requests in flight now.
    pub(crate) fn in_flight(&self) -> usize {
        self.permits.held.load(Ordering::Relaxed)
    }

    /// Permits that are free, and all there are.
    pub(crate) fn permits(&self) -> (usize, usize) {
        let free = self.permits.free.available_permits();
        (free, self.permits.bound.load(Ordering::Relaxed))
    }

    /// Requests in flight at most; `None`: no bound.
    pub(crate) fn in_flight_max(&self) -> Option<usize> {
        let bound = self.permits.bound.load(Ordering::Relaxed);
        (bound < UNBOUNDED).then_some(bound)
    }
}

// === impl Permits ===

impl Permits {
    fn resize(&self, bound: impl Fn() -> usize) {
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

// === impl AdmissionPermit ===

impl AdmissionPermit {
    fn new(permits: &Arc<Permits>, permit: OwnedSemaphorePermit) -> Self {
        permits.held.fetch_add(1, Ordering::Relaxed);
        Self {
            permits: Arc::clone(permits),
            permit: Some(permit),
        }
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        self.permits.held.fetch_sub(1, Ordering::Relaxed);
        let mut owed = self.permits.owed.lock();
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
