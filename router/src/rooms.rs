//! Rooms in flight at this router. A room is drawn at random and never given twice at a time:
//! two requests in one room would mix their KV.

use parking_lot::Mutex;
use pd_protocol::BootstrapRoom;
use std::collections::BTreeMap;
use std::sync::Arc;

/// First room of each request in flight → how many rooms it has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rooms {
    taken: Arc<Mutex<BTreeMap<BootstrapRoom, u32>>>,
}

/// Consecutive rooms of one request, given back when dropped.
#[derive(Debug)]
pub(crate) struct RoomRange {
    first: BootstrapRoom,
    count: u32,
    rooms: Rooms,
}

// === impl Rooms ===

impl Rooms {
    /// Draws `count` (at least 1) consecutive rooms that are free. `draw` gives 64 random bits.
    pub(crate) fn draw(&self, count: u32, mut draw: impl FnMut() -> u64) -> RoomRange {
        let count = count.max(1);
        let mut taken = self.taken.lock();
        loop {
            let first = BootstrapRoom::from_random(draw(), count);
            if is_free(&taken, first, count) {
                taken.insert(first, count);
                return RoomRange {
                    first,
                    count,
                    rooms: self.clone(),
                };
            }
        }
    }

    /// Requests that hold rooms.
    pub(crate) fn len(&self) -> usize {
        self.taken.lock().len()
    }
}

/// Whether `[first, first + count)` meets no taken range. Taken ranges do not overlap, so only
/// the last one that starts before the end can reach in.
fn is_free(taken: &BTreeMap<BootstrapRoom, u32>, first: BootstrapRoom, count: u32) -> bool {
    let last = first
        .item(count - 1)
        .expect("a drawn room leaves space for its items");
    taken
        .range(..=last)
        .next_back()
        .is_none_or(|(start, len)| start.get() + u64::from(*len) <= first.get())
}

// === impl RoomRange ===

impl RoomRange {
    pub(crate) fn first(&self) -> BootstrapRoom {
        self.first
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }
}

impl Drop for RoomRange {
    fn drop(&mut self) {
        self.rooms.taken.lock().remove(&self.first);
    }
}

#[cfg(test)]
mod tests;
