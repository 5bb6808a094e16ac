//! Memory for the bodies of all requests together: each is bounded by itself, but not how many come at once.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What is counted at once. Bodies that are smaller are bounded by the number of connections.
const PIECE_BYTES: usize = 64 << 10;

/// What all bodies may take.
#[derive(Debug)]
pub struct BodyBudget {
    pieces: Arc<Semaphore>,
    bytes_max: usize,
}

/// What one body holds of a [`BodyBudget`], until it is dropped.
#[derive(Debug, Default)]
pub struct BodyShare(Option<OwnedSemaphorePermit>);

/// The bodies of other requests leave no room for this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

// === impl BodyBudget ===

impl BodyBudget {
    /// For `bytes_max` bytes together.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            pieces: Arc::new(Semaphore::new(bytes_max / PIECE_BYTES)),
            bytes_max,
        }
    }

    /// Bytes of all bodies together, at most.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Lets a body grow to `len` bytes.
    ///
    /// # Errors
    /// There is no room for it now.
    pub(crate) fn grow(&self, share: &mut BodyShare, len: usize) -> Result<(), NoRoom> {
        let held = share.0.as_ref().map_or(0, |permit| permit.num_permits());
        let missing = (len / PIECE_BYTES).saturating_sub(held);
        if missing == 0 {
            return Ok(());
        }
        let missing = u32::try_from(missing).map_err(|_| NoRoom)?;
        let more = Arc::clone(&self.pieces).try_acquire_many_owned(missing);
        let more = more.map_err(|_| NoRoom)?;
        match &mut share.0 {
            Some(held) => held.merge(more),
            None => share.0 = Some(more),
        }
        Ok(())
    }
}

// === impl BodyShare ===

impl BodyShare {
    /// What `len` bytes hold, or all if it is less; the rest stays.
    #[must_use]
    pub fn split_off(&mut self, len: usize) -> Self {
        let held = self.0.as_mut();
        Self(held.and_then(|held| held.split((len / PIECE_BYTES).min(held.num_permits()))))
    }
}

#[cfg(test)]
mod tests;
