//! Decode copies chunks that a prefill has offered. One task per peer, in the order of the offers.

use super::lease;
use super::mapping::ShmMapping;
use crate::clock::Instant;
use crate::failure::FailureReason;
use crate::memory::{Region, RegionError, settle};
use crate::plan::CopyRange;
use crate::shared::Shared;
use crate::transport::incoming::{InboundPeer, InboundRooms, IncomingPart};
use pd_protocol::control::{ChunkDone, ChunkReady, ControlMessage};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Bytes copied between two looks at the fence: 4 MiB are a millisecond.
const STEP_BYTES: u64 = 4 << 20;
/// Offers that wait for the puller; a peer that makes more fails their rooms.
pub(crate) const OFFERS_MAX: usize = 4096;

pub(crate) async fn run(
    (shared, rooms): (Arc<Shared>, Arc<dyn InboundRooms>),
    peer: Arc<InboundPeer>,
    mapping: ShmMapping,
    mut offers: mpsc::Receiver<ChunkReady>,
) {
    loop {
        let offer = tokio::select! {
            offer = offers.recv() => offer,
            () = peer.lost.cancelled() => None,
        };
        let Some(offer) = offer else {
            return;
        };
        if let Some(part) = Arc::clone(&rooms).locate_chunk(&offer) {
            pull(&shared.regions, &peer, &mapping, &offer, part).await;
        }
    }
}

async fn pull(
    regions: &[Region],
    peer: &InboundPeer,
    mapping: &ShmMapping,
    offer: &ChunkReady,
    part: IncomingPart,
) {
    let started = Instant::now();
    let mut steps = Steps::new(&part.copies);
    while !steps.is_done() {
        let Some(guard) = part.room.fence().enter() else {
            return;
        };
        let copied = steps.copy_some(mapping, regions);
        // A lease and a fence cover bytes in place, so a device's copies are awaited under them; also
        // those that started before one was refused.
        let settled = settle(regions);
        drop(guard);
        if let Err(error) = copied.and(settled) {
            part.room.fail(FailureReason::copy(offer.room, &error));
            return;
        }
        if !steps.is_done() {
            part.room.announce();
            tokio::task::yield_now().await;
        }
    }
    if !lease::still_holds(&mapping.leases, offer.lease_idx, offer.lease) {
        let message = format!("prefill gave room {} up while it was copied", offer.room);
        part.room.fail(FailureReason::peer(message));
        return;
    }
    let done = ControlMessage::ChunkDone(ChunkDone {
        session_id: peer.session_id.clone(),
        room: offer.room,
        generation: offer.generation,
        first_page: offer.first_page,
        bytes: part.bytes,
        duration_ns: u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        last: offer.last.is_some(),
    });
    let copies = part.copies.len();
    peer.metrics.wrote(peer.transport, part.bytes, copies);
    // Only prefill's timeline misses it. Where this is the last of the room, its status goes along.
    let _ = peer.outbox.hold(&done);
    Arc::clone(&part.room).part_arrived(&part);
    let _ = peer.outbox.release();
}

/// Ranges copied a step at a time.
struct Steps<'a> {
    ranges: &'a [CopyRange],
    /// Done of the first range.
    within: u64,
}

impl<'a> Steps<'a> {
    fn new(ranges: &'a [CopyRange]) -> Self {
        Self { ranges, within: 0 }
    }

    fn is_done(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Copies up to `STEP_BYTES`.
    fn copy_some(&mut self, mapping: &ShmMapping, regions: &[Region]) -> Result<(), RegionError> {
        let mut left = STEP_BYTES;
        while let Some((range, rest)) = self.ranges.split_first()
            && left > 0
        {
            let step = left.min(range.len - self.within);
            regions[range.dst_region].copy_from(
                range.dst_offset + self.within,
                &mapping.regions[range.src_region],
                range.src_offset + self.within,
                usize::try_from(step).expect("STEP_BYTES fits memory"),
            )?;
            self.within += step;
            left -= step;
            if self.within == range.len {
                self.within = 0;
                self.ranges = rest;
            }
        }
        Ok(())
    }
}
