//! Prefill's end of a session's data connections: streams that take frames from one queue.

use super::frame::{FrameHeader, PAYLOAD_BYTES, VALID, VOID};
use crate::failure::FailureReason;
use crate::memory::vectored::{SpanCursor, of_memory};
use crate::metrics::PeerMetrics;
use crate::plan::TransferPlan;
use crate::prefill_side::PrefillSide;
use crate::prefill_side::room::{ChunkMeter, SenderRoom};
use crate::transport::OwnedTail;
use pd_protocol::Transport;
use pd_protocol::control::Generation;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};

/// Filler is written in parts of this.
const FILLER_BYTES: usize = 256 << 10;

/// One frame to write.
pub(crate) struct FrameJob {
    pub(crate) room: Arc<SenderRoom>,
    pub(crate) generation: Generation,
    /// Where `pages` stands in the room's list.
    pub(crate) first_page: u32,
    pub(crate) pages: Arc<[u32]>,
    pub(crate) range: Range<usize>,
    pub(crate) tail: Option<OwnedTail>,
    pub(crate) meter: Arc<ChunkMeter>,
}

/// Frames of a session, shared by its streams.
pub(crate) type FrameQueue = Arc<Mutex<mpsc::Receiver<FrameJob>>>;

/// Cuts `pages` of a chunk into ranges of about `PAYLOAD_BYTES`; one empty range for no pages.
pub(crate) fn frame_ranges(pages: usize, page_bytes: u64) -> Vec<Range<usize>> {
    let per_frame = usize::try_from(PAYLOAD_BYTES / page_bytes.max(1)).unwrap_or(usize::MAX);
    let per_frame = per_frame.max(1);
    if pages == 0 {
        return std::iter::once(0..0).collect();
    }
    let starts = (0..pages).step_by(per_frame);
    starts
        .map(|start| start..(start + per_frame).min(pages))
        .collect()
}

/// Writes frames until the queue closes or the connection breaks.
pub(crate) async fn run(
    mut stream: TcpStream,
    frames: &FrameQueue,
    source: (&TransferPlan, &PrefillSide),
    metrics: &PeerMetrics,
) -> io::Result<()> {
    loop {
        let Some(job) = frames.lock().await.recv().await else {
            return Ok(());
        };
        write_frame(&mut stream, &job, source, metrics).await?;
    }
}

async fn write_frame(
    stream: &mut TcpStream,
    job: &FrameJob,
    (plan, side): (&TransferPlan, &PrefillSide),
    metrics: &PeerMetrics,
) -> io::Result<()> {
    if job.room.fence.enter().is_none() {
        return Ok(());
    }
    job.meter.start();
    let mut spans = plan.src_page_spans(&job.pages[job.range.clone()]);
    let parts = plan.page_parts(job.range.len());
    metrics.planned(Transport::Tcp, parts, spans.len());
    if let Some(tail) = &job.tail {
        spans.extend(plan.src_tail_spans(tail.as_tail()));
    }
    let cursor = SpanCursor::new(spans);
    let payload_bytes = cursor.left();
    let index = |n: usize| u32::try_from(n).expect("a page list fits u32");
    let header = FrameHeader {
        room: job.room.id,
        generation: job.generation,
        first_page: job.first_page + index(job.range.start),
        page_count: index(job.range.len()),
        last: job.tail.is_some(),
        payload_bytes,
    };
    stream.write_all(&header.encode()).await?;
    let valid = write_payload(stream, job, cursor, side).await?;
    if valid {
        // Before the trailer: decode may confirm the room as soon as it has read that.
        metrics.wrote(Transport::Tcp, payload_bytes, 1);
        job.room.frame_left(&job.meter, payload_bytes);
    }
    let trailer = if valid { VALID } else { VOID };
    stream.write_all(&[trailer]).await
}

/// Writes the payload from the room's pages for as long as the room's fence is open, and filler
/// after that, so that the next frame starts where the reader expects it. True if all was the room's.
async fn write_payload(
    stream: &mut TcpStream,
    job: &FrameJob,
    mut cursor: SpanCursor,
    side: &PrefillSide,
) -> io::Result<bool> {
    while !cursor.is_done() {
        stream.writable().await?;
        let Some(guard) = job.room.fence.enter() else {
            fill(stream, cursor.left()).await?;
            return Ok(false);
        };
        let written = stream.try_io(Interest::WRITABLE, || {
            cursor.write_some(stream.as_fd(), &side.shared.regions)
        });
        drop(guard);
        match written {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                let memory =
                    of_memory(&error).map(|memory| FailureReason::copy(job.room.id, memory));
                side.fail(&job.room, memory.ok_or(error)?);
                fill(stream, cursor.left()).await?;
                return Ok(false);
            }
        }
    }
    Ok(true)
}

async fn fill(stream: &mut TcpStream, bytes: u64) -> io::Result<()> {
    let filler = vec![0; FILLER_BYTES];
    let mut left = bytes;
    while left > 0 {
        let part = filler
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        stream.write_all(&filler[..part]).await?;
        left -= part as u64;
    }
    Ok(())
}
