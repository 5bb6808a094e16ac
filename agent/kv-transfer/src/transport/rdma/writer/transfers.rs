//! The rooms of the writer: chunks come in, posts go out, and what no NIC holds any more is released.

use super::handle::Job;
use super::{Live, ROUND, Writer};
use crate::clock::Instant;
use crate::transport::outgoing::ChunkMeter;
use crate::transport::rdma::dispatch::{Completion, Lane, Post, TransferId};
use crate::transport::rdma::immediate::Final;
use pd_protocol::control::{AbortAck, ControlMessage, Generation};
use pd_protocol::{BootstrapRoom, KvPoll};
use std::collections::BTreeMap;
use std::time::Duration;

impl Writer {
    pub(super) fn on_job(&mut self, job: Job) {
        let Job {
            room,
            info,
            ranges,
            last,
        } = job;
        let key = (room.id(), info.generation);
        let id = *self.ids.entry(key).or_insert_with(|| {
            self.next_id += 1;
            TransferId(self.next_id)
        });
        let live = self.live.entry(id).or_insert_with(|| {
            self.peer.answer(&info, KvPoll::Transferring, None);
            Live {
                room,
                info,
                chunks: Vec::new(),
                guard: None,
                is_aborted: false,
            }
        });
        if live.is_aborted {
            return;
        }
        let pieces = self.dispatch.add(id, live.chunks.len(), ranges);
        if pieces == 0 {
            live.room.report(0, Duration::ZERO, last);
        }
        let meter = ChunkMeter::new(pieces, last);
        meter.start();
        live.chunks.push(meter);
        if last {
            self.dispatch.set_whole(id);
        }
    }

    pub(super) fn on_aborted(&mut self, room: BootstrapRoom, generation: Generation) {
        match self.ids.get(&(room, generation)).copied() {
            Some(id) => {
                if let Some(live) = self.live.get_mut(&id) {
                    live.is_aborted = true;
                }
                self.cancel(id);
            }
            None => self.acknowledge(room, generation),
        }
    }

    fn acknowledge(&self, room: BootstrapRoom, generation: Generation) {
        // Counted first: decode, which counts it too, may be read as soon as it has it.
        self.peer.metrics.abort_answered();
        self.send(&ControlMessage::AbortAck(AbortAck {
            session_id: self.peer.id().clone(),
            room,
            generation,
        }));
    }

    /// Writes nothing more of a transfer; what the NICs hold ends first.
    fn cancel(&mut self, id: TransferId) {
        if self.dispatch.cancel(id) {
            self.forget(id);
        }
    }

    pub(super) fn forget(&mut self, id: TransferId) {
        self.dispatch.forget(id);
        let Some(live) = self.live.remove(&id) else {
            return;
        };
        let key = (live.room.id(), live.info.generation);
        self.ids.remove(&key);
        if live.is_aborted {
            self.acknowledge(key.0, key.1);
        }
    }

    /// Posts what can be posted, of rooms whose fences are open.
    pub(super) fn pump(&mut self) {
        let mut ended = Vec::new();
        for (id, live) in &mut self.live {
            match live.room.fence().enter() {
                Some(guard) => {
                    live.guard.get_or_insert(guard);
                }
                None => ended.push(*id),
            }
        }
        ended.into_iter().for_each(|id| self.cancel(id));
        loop {
            let posts = self.dispatch.next(ROUND, Instant::now());
            if posts.is_empty() {
                break;
            }
            let mut by_lane: BTreeMap<Lane, Vec<Post>> = BTreeMap::new();
            for post in posts {
                by_lane.entry(post.lane).or_default().push(post);
            }
            for (lane, posts) in by_lane {
                let live = &self.live;
                let immediate = |id: TransferId, attempt, lanes| {
                    let info = &live[&id].info;
                    let row = info.metadata_buffer_index;
                    let generation = Final::low_bits(info.generation);
                    Final {
                        row,
                        generation,
                        attempt,
                        lanes,
                    }
                    .encode()
                };
                if let Err(reason) = self.rails[lane.rail].post(lane.index, &posts, immediate) {
                    self.fail_rail(lane.rail, &reason);
                }
            }
        }
        for (number, rail) in self.rails.iter_mut().enumerate() {
            rail.show(self.dispatch.in_flight_bytes_of(number));
        }
        for (id, live) in &mut self.live {
            if self.dispatch.is_idle(*id) {
                live.guard = None;
            }
        }
    }

    pub(super) fn on_done(&mut self, rail: usize, done: Completion) {
        match done {
            Completion::Piece {
                transfer,
                chunk,
                bytes,
                is_again,
                took,
            } => {
                self.rails[rail].wrote(bytes, took);
                let live = self.live.get(&transfer).filter(|_| !is_again);
                if let Some(live) = live {
                    live.chunks[chunk].wrote(&*live.room, bytes);
                }
            }
            Completion::Idle(id) => self.on_idle(id),
        }
    }

    /// The NICs here hold nothing of a transfer.
    pub(super) fn on_idle(&mut self, id: TransferId) {
        let Some(live) = self.live.get_mut(&id) else {
            return;
        };
        live.guard = None;
        if self.dispatch.is_over(id) {
            self.forget(id);
        }
    }
}
