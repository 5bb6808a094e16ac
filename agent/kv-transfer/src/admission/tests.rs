//! Facts about the bounds of connections.

use super::*;

pub(crate) fn mk_memory(own: usize, all: usize) -> Memory {
    Memory {
        own: Arc::new(Semaphore::new(own)),
        all: Arc::new(Semaphore::new(all)),
    }
}

/// Pieces that nothing holds, of an address and of all.
pub(crate) fn left(memory: &Memory) -> (usize, usize) {
    (
        memory.own.available_permits(),
        memory.all.available_permits(),
    )
}

impl Memory {
    /// Takes `pieces` of the memory of all, as other addresses would.
    pub(crate) async fn take_all(&self, pieces: u32) -> OwnedSemaphorePermit {
        let taken = Arc::clone(&self.all).acquire_many_owned(pieces).await;
        taken.unwrap()
    }
}

#[tokio::test]
async fn a_message_holds_its_pieces_until_it_is_dropped() {
    let memory = mk_memory(64, 64);
    let mut held = Held::default();
    memory.grow(&mut held, PIECE_BYTES - 1).await;
    assert_eq!(left(&memory), (64, 64));
    memory.grow(&mut held, 3 * PIECE_BYTES).await;
    memory.grow(&mut held, 4 * PIECE_BYTES).await;
    assert_eq!(left(&memory), (60, 60));
    drop(held);
    assert_eq!(left(&memory), (64, 64));
}

#[test]
fn an_address_has_so_many_connections_and_others_are_let_in() {
    let admission = Admission::new();
    let (one, other) = ([127, 0, 0, 1].into(), [127, 0, 0, 2].into());
    let count = || admission.count(one);
    let mut open: Vec<_> = (0..CONNECTIONS_PER_ADDRESS_MAX).map(|_| count()).collect();
    assert!(open.iter().all(Option::is_some));
    assert!(count().is_none());
    assert!(admission.count(other).is_some());
    open.pop();
    assert!(count().is_some());
    open.clear();
    assert!(admission.by_address.lock().is_empty());
}
