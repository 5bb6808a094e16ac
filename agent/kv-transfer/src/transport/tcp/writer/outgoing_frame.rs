//! One frame, as it is queued and as it is written.

use super::super::frame::{FrameHeader, HEADER_BYTES, VALID};
use crate::memory::Region;
use crate::memory::vectored::SpanCursor;
use crate::plan::{OwnedTail, TransferPlan};
use crate::transport::outgoing::{ChunkMeter, OutboundPeer, OutboundRoom};
use pd_protocol::Transport;
use pd_protocol::control::Generation;
use rustix::net::SendFlags;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// One frame to write.
pub(super) struct FrameJob {
    pub(super) room: Arc<dyn OutboundRoom>,
    pub(super) generation: Generation,
    /// Where `pages` stands in the room's list.
    pub(super) first_page: u32,
    pub(super) pages: Arc<[u32]>,
    pub(super) range: Range<usize>,
    pub(super) tail: Option<OwnedTail>,
    pub(super) meter: Arc<ChunkMeter>,
}

/// A frame on its way.
pub(super) struct OutgoingFrame {
    pub(super) job: FrameJob,
    header: [u8; HEADER_BYTES],
    header_done: usize,
    /// Of the payload.
    pub(super) cursor: SpanCursor,
    payload_bytes: u64,
    /// Parts of pages, and ranges that they became.
    planned: (usize, usize),
}

// === impl OutgoingFrame ===

impl OutgoingFrame {
    /// The frame starts to leave.
    pub(super) fn new(job: FrameJob, plan: &TransferPlan) -> Self {
        job.meter.start();
        let mut spans = plan.src_page_spans(&job.pages[job.range.clone()]);
        let planned = (plan.page_parts(job.range.len()), spans.len());
        if let Some(tail) = &job.tail {
            spans.extend(plan.src_tail_spans(tail.as_tail()));
        }
        let cursor = SpanCursor::new(spans);
        let payload_bytes = cursor.left();
        let index = |n: usize| u32::try_from(n).expect("a page list fits u32");
        let header = FrameHeader {
            room: job.room.id(),
            generation: job.generation,
            first_page: job.first_page + index(job.range.start),
            page_count: index(job.range.len()),
            last: job.tail.is_some(),
            payload_bytes,
        };
        Self {
            job,
            header: header.encode(),
            header_done: 0,
            cursor,
            payload_bytes,
            planned,
        }
    }

    pub(super) fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    pub(super) fn header_left(&self) -> &[u8] {
        &self.header[self.header_done..]
    }

    /// Writes a frame of which nothing has left, without waiting; true if all of it has left. The caller is within the
    /// room's fence, so the payload is the room's if all has. The header goes first: the reader wakes while the payload
    /// is copied.
    ///
    /// # Errors
    /// The socket's; nothing has left. What fails after the header is left to the task, which finds it again.
    pub(super) fn write_at_once(
        &mut self,
        socket: BorrowedFd<'_>,
        regions: &[Region],
    ) -> io::Result<bool> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.header_done = rustix::net::send(socket, &self.header, flags)?;
        if self.header_done < HEADER_BYTES {
            return Ok(false);
        }
        let rest = self.cursor.write_with_end(socket, regions, &[VALID]);
        Ok(rest.unwrap_or(false))
    }

    pub(super) fn count_plan(&self, peer: &OutboundPeer) {
        let (parts, ranges) = self.planned;
        peer.metrics.planned(Transport::Tcp, parts, ranges);
    }

    /// All of the payload has left.
    pub(super) fn count_written(&self, peer: &OutboundPeer) {
        peer.metrics.wrote(Transport::Tcp, self.payload_bytes, 1);
        self.job.meter.wrote(&*self.job.room, self.payload_bytes);
    }
}
