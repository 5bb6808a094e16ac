//! The queues of the task: chunks of rooms, and events of decode and of the NICs.

use super::Writer;
use crate::failure::FailureReason;
use crate::plan::{CopyRange, Tail};
use crate::shared::Shared;
use crate::transport::outgoing::{OutboundChunk, OutboundPeer, OutboundRoom};
use crate::transport::rdma::fabric::Fabric;
use pd_protocol::BootstrapRoom;
use pd_protocol::control::{Generation, NicInfo, RailAnswer, RailClosed, TransferInfo};
use pd_verbs::Completion;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// Chunks that wait for the task. A room beyond that fails.
const JOBS_MAX: usize = 16_384;
/// Messages and completions that wait for the task: a full round of completions of each rail, and an
/// abort of each of a thousand rooms. A peer that sends more before the task runs is lost; a rail's
/// completions wait in their queue instead.
const EVENTS_MAX: usize = 4096;

/// A chunk to write.
pub(super) struct Job {
    pub(super) room: Arc<dyn OutboundRoom>,
    pub(super) info: TransferInfo,
    pub(super) ranges: Vec<CopyRange>,
    pub(super) last: bool,
}

/// What the task learns from others.
pub(crate) enum Event {
    Answered(RailAnswer),
    Closed(RailClosed),
    /// Decode wants no rails any more.
    Unwanted,
    /// Decode wants nothing more of a room, and to know when nothing more comes.
    Aborted(BootstrapRoom, Generation),
    Completed {
        rail: usize,
        epoch: u32,
        completions: Vec<Completion>,
    },
    /// A rail's NIC does not answer.
    Broken {
        rail: usize,
        epoch: u32,
        reason: String,
    },
}

/// Queues to the task.
pub(crate) struct WriterHandle {
    jobs: mpsc::Sender<Job>,
    events: mpsc::Sender<Event>,
}

// === impl WriterHandle ===

impl WriterHandle {
    /// Starts the task, within the runtime: it offers rails between these NICs and ours.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        peer: &Arc<OutboundPeer>,
        fabric: &Arc<Fabric>,
        nics: &[NicInfo],
    ) -> Self {
        let (jobs, waiting) = mpsc::channel(JOBS_MAX);
        let (events, notified) = mpsc::channel(EVENTS_MAX);
        let writer = Writer::new(shared, peer, (fabric, nics), events.clone());
        let running = writer.run(waiting, notified);
        shared.tasks.spawn("rails", running);
        Self { jobs, events }
    }

    /// Queues a chunk's writes into a decode rank's memory.
    ///
    /// # Errors
    /// Too many wait, the task has ended, or decode offers too few pages.
    pub(crate) fn send<R: OutboundRoom + 'static>(
        &self,
        peer: &OutboundPeer,
        room: &Arc<R>,
        info: &TransferInfo,
        chunk: &OutboundChunk,
    ) -> Result<(), FailureReason> {
        let first = chunk.first_page as usize;
        let to = info.page_indices.get(first..first + chunk.pages.len());
        let to = to.ok_or_else(|| {
            let message = format!("room {}: decode offers too few pages", room.id());
            FailureReason::peer(message)
        })?;
        let mut ranges = peer.plan.page_ranges(&chunk.pages, to);
        let parts = peer.plan.page_parts(chunk.pages.len());
        peer.metrics.planned(info.transport, parts, ranges.len());
        if let Some(tail) = &chunk.tail {
            let to = Tail {
                state_indices: &info.state_indices,
                metadata_buffer_index: info.metadata_buffer_index,
            };
            ranges.extend(peer.plan.tail_ranges(tail.as_tail(), to));
        }
        let job = Job {
            room: room.clone(),
            info: info.clone(),
            ranges,
            last: chunk.tail.is_some(),
        };
        let queued = self.jobs.try_send(job);
        queued.map_err(|_| {
            let room = room.id();
            FailureReason::network(format!("room {room}: its rails are backed up or gone"))
        })
    }

    /// Passes an event to the task, without waiting; a peer that floods it is lost. False if the task has
    /// ended: it writes nothing more.
    pub(crate) fn notify(&self, peer: &OutboundPeer, event: Event) -> bool {
        notify(&self.events, event, |reason| peer.lose(reason))
    }
}

/// False if no task takes events any more; `lose` is called if too many wait.
fn notify(events: &mpsc::Sender<Event>, event: Event, lose: impl FnOnce(&FailureReason)) -> bool {
    match events.try_send(event) {
        Ok(()) => true,
        Err(TrySendError::Full(_)) => {
            let waiting = events.max_capacity();
            let message = format!("decode sent more than {waiting} rail messages at once");
            lose(&FailureReason::peer(message));
            true
        }
        Err(TrySendError::Closed(_)) => false,
    }
}

#[cfg(test)]
mod tests;
