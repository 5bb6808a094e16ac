//! The router's stages of the latest requests, by room, in a ring of bounded size.

use parking_lot::Mutex;
use pd_protocol::BootstrapRoom;
use pd_protocol::timeline::{RequestTimeline, Stage, StageEvent};
use std::collections::VecDeque;

/// Requests remembered; the oldest makes way.
const CAPACITY: usize = 4096;

/// Stages of the router, in the order in which they come.
const STAGES: [Stage; 4] = [
    Stage::RouterAccepted,
    Stage::RouterDispatched,
    Stage::RouterFirstByte,
    Stage::RouterDone,
];

#[derive(Debug, Default)]
pub(crate) struct Timeline {
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    records: VecDeque<Record>,
    /// Sequence number of the oldest record.
    first_seq: u64,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    first: BootstrapRoom,
    count: u32,
    /// One per stage; 0: not reached.
    at_unix_ns: [u64; 4],
}

/// Names a request's record for as long as the ring holds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    seq: u64,
}

// === impl Timeline ===

impl Timeline {
    /// Begins the record of the `count` rooms from `first`.
    pub(crate) fn open(
        &self,
        first: BootstrapRoom,
        count: u32,
        accepted: u64,
        dispatched: u64,
    ) -> Entry {
        let mut ring = self.ring.lock();
        if ring.records.len() == CAPACITY {
            ring.records.pop_front();
            ring.first_seq += 1;
        }
        ring.records.push_back(Record {
            first,
            count,
            at_unix_ns: [accepted, dispatched, 0, 0],
        });
        Entry {
            seq: ring.first_seq + ring.records.len() as u64 - 1,
        }
    }

    pub(crate) fn mark_first_byte(&self, entry: Entry, at_unix_ns: u64) {
        self.mark(entry, 2, at_unix_ns);
    }

    pub(crate) fn mark_done(&self, entry: Entry, at_unix_ns: u64) {
        self.mark(entry, 3, at_unix_ns);
    }

    fn mark(&self, entry: Entry, stage_idx: usize, at_unix_ns: u64) {
        let mut ring = self.ring.lock();
        let idx = entry.seq.checked_sub(ring.first_seq);
        let idx = idx.and_then(|idx| usize::try_from(idx).ok());
        if let Some(record) = idx.and_then(|idx| ring.records.get_mut(idx)) {
            record.at_unix_ns[stage_idx] = at_unix_ns;
        }
    }

    /// The latest record that holds `room`.
    pub(crate) fn get(&self, room: BootstrapRoom) -> Option<RequestTimeline> {
        let record = {
            let ring = self.ring.lock();
            let mut latest_first = ring.records.iter().rev();
            *latest_first.find(|record| record.holds(room))?
        };
        Some(RequestTimeline {
            room,
            process: "router".to_owned(),
            events: record.events(),
        })
    }
}

// === impl Record ===

impl Record {
    fn holds(&self, room: BootstrapRoom) -> bool {
        let ahead = room.get().checked_sub(self.first.get());
        ahead.is_some_and(|ahead| ahead < u64::from(self.count))
    }

    fn events(&self) -> Vec<StageEvent> {
        let reached = STAGES.into_iter().zip(self.at_unix_ns);
        reached
            .filter(|(_, at_unix_ns)| *at_unix_ns > 0)
            .map(|(stage, at_unix_ns)| StageEvent {
                stage,
                at_unix_ns,
                duration_ns: None,
                tokens: None,
                bytes: None,
                state_bytes: None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
