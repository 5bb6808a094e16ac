//! Stages of recent requests with their wall-clock times, by room. A bounded ring: the oldest room
//! is forgotten.

use parking_lot::Mutex;
use pd_protocol::BootstrapRoom;
use pd_protocol::timeline::{Stage, StageEvent};
use std::collections::{HashMap, VecDeque};

/// Rooms remembered.
const ROOMS_MAX: usize = 1024;
/// Stages of one room: a prompt of 128 Ki tokens in chunks of 512 has 2 × 256 and some.
const EVENTS_MAX: usize = 1024;

#[derive(Debug, Default)]
pub struct Timelines {
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    order: VecDeque<BootstrapRoom>,
    rooms: HashMap<BootstrapRoom, Vec<StageEvent>>,
}

// === impl Timelines ===

impl Timelines {
    pub fn record(&self, room: BootstrapRoom, event: StageEvent) {
        let ring = &mut *self.ring.lock();
        if !ring.rooms.contains_key(&room) {
            if ring.order.len() == ROOMS_MAX
                && let Some(oldest) = ring.order.pop_front()
            {
                ring.rooms.remove(&oldest);
            }
            ring.order.push_back(room);
        }
        let events = ring.rooms.entry(room).or_default();
        if events.len() < EVENTS_MAX {
            events.push(event);
        }
    }

    pub fn events(&self, room: BootstrapRoom) -> Option<Vec<StageEvent>> {
        self.ring.lock().rooms.get(&room).cloned()
    }

    /// The rooms of which a stage has ended since then, in the order in which they came.
    pub(crate) fn since(&self, unix_ns: u64) -> Vec<(BootstrapRoom, Vec<StageEvent>)> {
        let ring = self.ring.lock();
        let rooms = ring.order.iter().filter_map(|room| {
            let events = ring.rooms.get(room)?;
            let is_recent = events.iter().any(|event| event.at_unix_ns >= unix_ns);
            is_recent.then(|| (*room, events.clone()))
        });
        rooms.collect()
    }
}

/// Nanoseconds since the Unix epoch.
pub(crate) fn unix_ns() -> u64 {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since_epoch.map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}

/// A stage that has just ended.
pub fn stage_now(stage: Stage) -> StageEvent {
    StageEvent {
        stage,
        at_unix_ns: unix_ns(),
        duration_ns: None,
        tokens: None,
        bytes: None,
        state_bytes: None,
    }
}

#[cfg(test)]
mod tests;
