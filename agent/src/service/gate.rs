//! The gate that requests go through to the model: closed while other weights take the place of its own, so that each request
//! is answered by one of them from its first step to its last.

use super::Service;
use crate::http::error::ApiError;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

#[derive(Debug)]
pub(crate) struct Gate {
    lock: Arc<RwLock<()>>,
    waiting: AtomicU64,
    waiting_max: u64,
}

/// The model, for one request until its handler ends; the engine counts what it runs longer.
#[derive(Debug)]
pub(crate) struct Entered {
    service: Arc<Service>,
    _pass: Pass,
}

/// Keeps the gate from closing.
pub(super) type Pass = OwnedRwLockReadGuard<()>;

/// Keeps the gate closed.
pub(crate) type Closed = OwnedRwLockWriteGuard<()>;

/// A request that waits.
struct Waiting<'a>(&'a AtomicU64);

// === impl Gate ===

impl Gate {
    pub(super) fn new(waiting_max: u32) -> Self {
        Self {
            lock: Arc::default(),
            waiting: AtomicU64::new(0),
            waiting_max: waiting_max.into(),
        }
    }

    /// Goes through, or waits while it is closed.
    ///
    /// # Errors
    /// 503 when as many wait as may.
    pub(super) async fn pass(&self) -> Result<Pass, ApiError> {
        if let Ok(pass) = Arc::clone(&self.lock).try_read_owned() {
            return Ok(pass);
        }
        let before = self.waiting.fetch_add(1, Ordering::AcqRel);
        let _waiting = Waiting(&self.waiting);
        if before >= self.waiting_max {
            let message = format!(
                "weights are being replaced, and {before} requests wait for it (--max-queued-requests); retry here or \
                 elsewhere"
            );
            return Err(ApiError::retriable(message));
        }
        Ok(Arc::clone(&self.lock).read_owned().await)
    }

    /// Lets no request through from the first poll on, and resolves when those who went through have left.
    pub(crate) fn close(&self) -> impl Future<Output = Closed> + use<> {
        Arc::clone(&self.lock).write_owned()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock.try_read().is_err()
    }

    /// Requests before it.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Acquire)
    }
}

// === impl Entered ===

impl Entered {
    pub(super) fn new(service: Arc<Service>, pass: Pass) -> Self {
        Self {
            service,
            _pass: pass,
        }
    }
}

impl Deref for Entered {
    type Target = Service;

    fn deref(&self) -> &Service {
        &self.service
    }
}

// === impl Waiting ===

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
