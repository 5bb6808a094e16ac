//! How many connections an address and all have, and what memory their unfinished messages hold.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections of one address at a port that strangers reach: a host's ranks, several times over.
pub(crate) const CONNECTIONS_PER_ADDRESS_MAX: usize = 256;
/// Memory for messages that are larger than a piece and not complete: in all, and for one address.
const PIECE_BYTES: usize = 64 << 10;
const PIECES_MAX: usize = 2048;
const PIECES_PER_ADDRESS_MAX: usize = 512;

/// What all connections share.
pub(crate) struct Admission {
    pieces: Arc<Semaphore>,
    by_address: Mutex<HashMap<IpAddr, Address>>,
}

/// What the connections of one address share.
struct Address {
    open: usize,
    pieces: Arc<Semaphore>,
}

/// One connection of an address, counted until it is dropped.
pub(crate) struct Counted {
    admission: Arc<Admission>,
    address: IpAddr,
    pub(crate) memory: Memory,
}

/// Where a connection's messages get their memory: the pieces of its address, then those of all.
#[derive(Clone)]
pub(crate) struct Memory {
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// Pieces that a message holds until it has been handled.
#[derive(Debug, Default)]
pub(crate) struct Held {
    permits: Vec<OwnedSemaphorePermit>,
    pieces: usize,
}

// === impl Admission ===

impl Admission {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            pieces: Arc::new(Semaphore::new(PIECES_MAX)),
            by_address: Mutex::default(),
        })
    }

    /// Counts a connection, unless its address has as many as it may.
    pub(crate) fn count(self: &Arc<Self>, address: IpAddr) -> Option<Counted> {
        let mut by_address = self.by_address.lock();
        let known = by_address.entry(address).or_insert_with(|| Address {
            open: 0,
            pieces: Arc::new(Semaphore::new(PIECES_PER_ADDRESS_MAX)),
        });
        if known.open == CONNECTIONS_PER_ADDRESS_MAX {
            return None;
        }
        known.open += 1;
        let memory = Memory {
            own: Arc::clone(&known.pieces),
            all: Arc::clone(&self.pieces),
        };
        Some(Counted {
            admission: Arc::clone(self),
            address,
            memory,
        })
    }
}

// === impl Counted ===

impl Drop for Counted {
    fn drop(&mut self) {
        let mut by_address = self.admission.by_address.lock();
        if let Some(known) = by_address.get_mut(&self.address) {
            known.open -= 1;
            if known.open == 0 {
                by_address.remove(&self.address);
            }
        }
    }
}

// === impl Memory ===

impl Memory {
    /// Lets a message that holds `held` grow to `bytes`; waits for others to give memory back.
    pub(crate) async fn grow(&self, held: &mut Held, bytes: usize) {
        let missing = (bytes / PIECE_BYTES).saturating_sub(held.pieces);
        let number = u32::try_from(missing).expect("a message is bounded");
        if number == 0 {
            return;
        }
        // All of a frame at once: two messages that each held a part would wait for each other.
        for pieces in [&self.own, &self.all] {
            let permits = Arc::clone(pieces).acquire_many_owned(number).await;
            held.permits
                .push(permits.expect("the semaphores are never closed"));
        }
        held.pieces += missing;
    }
}

#[cfg(test)]
pub(crate) mod tests;
