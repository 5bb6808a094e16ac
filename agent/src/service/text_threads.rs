//! Tokenising off the HTTP threads: bounded in memory, and cancelled when its caller is gone.

use crate::http::error::ApiError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Semaphore;

/// Bytes of text that are tokenised concurrently. Each takes some 200 bytes of memory meanwhile.
pub(crate) const BYTES_AT_ONCE: u32 = 4 << 20;

/// Access to the threads that tokenise long texts.
#[derive(Debug)]
pub(crate) struct TextThreads {
    /// One permit per byte.
    budget: Arc<Semaphore>,
}

/// Asks a job to end when its caller is gone.
#[derive(Debug, Default)]
struct CancelOnDrop(Arc<AtomicBool>);

// === impl TextThreads ===

impl TextThreads {
    pub(crate) fn new() -> Self {
        Self {
            budget: Arc::new(Semaphore::new(BYTES_AT_ONCE as usize)),
        }
    }

    /// Runs `job` on a thread that may block, once its text of `bytes` bytes fits into the budget;
    /// a text that never would takes the whole budget. Dropping the future ends the wait, or sets
    /// the flag that `job` is given.
    ///
    /// # Errors
    /// 500 when `job` panics.
    pub(crate) async fn run<T, F>(&self, bytes: usize, job: F) -> Result<T, ApiError>
    where
        F: FnOnce(&AtomicBool) -> T + Send + 'static,
        T: Send + 'static,
    {
        let permits = u32::try_from(bytes).unwrap_or(BYTES_AT_ONCE);
        let permits = permits.min(BYTES_AT_ONCE);
        let permit = Arc::clone(&self.budget).acquire_many_owned(permits).await;
        let permit = permit.expect("the budget is never closed");
        let caller = CancelOnDrop::default();
        let cancelled = Arc::clone(&caller.0);
        let done = tokio::task::spawn_blocking(move || {
            let done = job(&cancelled);
            drop(permit);
            done
        });
        done.await
            .map_err(|why| ApiError::internal(format!("tokenising failed: {why}")))
    }
}

// === impl CancelOnDrop ===

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
