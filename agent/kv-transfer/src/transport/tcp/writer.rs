//! Prefill's end of the data connections to one decode rank: streams that take frames from one queue. A small chunk is
//! written by the thread that sends it where a stream is idle (`writer/lane.rs`).

mod lane;
mod outgoing_frame;

use super::frame::{DIRECT_BYTES_MAX, PAYLOAD_BYTES, VALID, VOID};
use crate::failure::FailureReason;
use crate::fence::Fence;
use crate::memory::Region;
use crate::memory::vectored::{SpanCursor, of_memory};
use crate::net::{Stream, duplicate, kernel};
use crate::peer_connection::{self, ConnectionKind};
use crate::shared::Shared;
use crate::transport::outgoing::{ChunkMeter, OutboundChunk, OutboundPeer, OutboundRoom};
use lane::Lane;
use outgoing_frame::{FrameJob, OutgoingFrame};
use pd_protocol::control::{KvArgsRegisterInfo, TransferInfo};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::sync::{Mutex, mpsc};

/// Bytes to copy at once where the kernel does not take them from memory, such as to encrypt them: four records of TLS.
const CLEAR_BYTES: usize = 64 << 10;
/// Filler is written in parts of this.
const FILLER_BYTES: usize = 256 << 10;

/// Frames to a decode rank, shared by its streams.
type FrameQueue = Arc<Mutex<mpsc::Receiver<FrameJob>>>;

/// Frames that wait for the streams: 64 GiB of full ones. A room beyond that fails.
const FRAMES_MAX: usize = 16_384;

/// A decode rank's data connections, opened by the first room that goes over tcp.
pub(crate) struct Streams {
    frames: mpsc::Sender<FrameJob>,
    /// Taken as the streams open.
    queue: parking_lot::Mutex<Option<FrameQueue>>,
    lanes: OnceLock<Vec<Arc<Lane>>>,
}

// === impl Streams ===

impl Streams {
    pub(crate) fn new() -> Self {
        let (frames, queue) = mpsc::channel(FRAMES_MAX);
        let queue = Arc::new(Mutex::new(queue));
        Self {
            frames,
            queue: parking_lot::Mutex::new(Some(queue)),
            lanes: OnceLock::new(),
        }
    }

    /// Opens the data connections, once, within the runtime.
    pub(crate) fn start(&self, shared: &Arc<Shared>, peer: &Arc<OutboundPeer>) {
        let Some(frames) = self.queue.lock().take() else {
            return;
        };
        let lanes = (0..shared.config.transfer.tcp_streams.max(1)).map(|_| Arc::default());
        for lane in self.lanes.get_or_init(|| lanes.collect()) {
            let (shared, peer) = (Arc::clone(shared), Arc::clone(peer));
            let (frames, lane) = (Arc::clone(&frames), Arc::clone(lane));
            let tasks = shared.tasks.clone();
            tasks.spawn("data connection", async move {
                tokio::select! {
                    ended = stream((&frames, &lane), &peer, &shared) => {
                        if let Err(error) = ended {
                            let to = (&peer.info.endpoint, peer.info.data_port);
                            let message = format!("data connection to {}:{}: {error}", to.0, to.1);
                            peer.lose(&FailureReason::network(message));
                        }
                    }
                    () = peer.lost.cancelled() => {}
                }
            });
        }
    }

    /// Writes a small chunk, or queues a chunk's frames.
    ///
    /// # Errors
    /// Too many wait.
    pub(crate) fn send<R: OutboundRoom + 'static>(
        &self,
        (peer, regions): (&OutboundPeer, &[Region]),
        room: &Arc<R>,
        info: &TransferInfo,
        chunk: &OutboundChunk,
    ) -> Result<(), FailureReason> {
        let ranges = frame_ranges(chunk.pages.len(), peer.plan.page_bytes());
        let meter = Arc::new(ChunkMeter::new(ranges.len(), chunk.tail.is_some()));
        let count = ranges.len();
        for (i, range) in ranges.into_iter().enumerate() {
            let room: Arc<dyn OutboundRoom> = room.clone();
            let job = FrameJob {
                room,
                generation: info.generation,
                first_page: chunk.first_page,
                pages: Arc::clone(&chunk.pages),
                range,
                tail: chunk.tail.clone().filter(|_| i + 1 == count),
                meter: Arc::clone(&meter),
            };
            if let Some(job) = self.write_directly(job, peer, regions) {
                self.enqueue(job)?;
            }
        }
        Ok(())
    }

    /// Writes a small frame on the caller's thread; the frame if it is not small, or no stream is idle.
    fn write_directly(
        &self,
        mut job: FrameJob,
        peer: &OutboundPeer,
        regions: &[Region],
    ) -> Option<FrameJob> {
        if peer.plan.page_bytes() * job.range.len() as u64 > DIRECT_BYTES_MAX {
            return Some(job);
        }
        for lane in self.lanes.get().into_iter().flatten() {
            job = lane.write(job, peer, regions)?;
        }
        Some(job)
    }

    fn enqueue(&self, job: FrameJob) -> Result<(), FailureReason> {
        self.frames.try_send(job).map_err(|error| {
            let room = error.into_inner().room.id();
            let message = format!("room {room}: the data connections are backed up");
            FailureReason::network(message)
        })
    }
}

async fn stream(
    (frames, lane): (&FrameQueue, &Lane),
    peer: &OutboundPeer,
    shared: &Shared,
) -> io::Result<()> {
    let transfer = &shared.config.transfer;
    let KvArgsRegisterInfo {
        endpoint,
        data_port,
        session_id,
        ..
    } = &peer.info;
    let stream = peer_connection::connect(
        transfer,
        (endpoint, *data_port),
        ConnectionKind::Data,
        session_id,
    )
    .await?;
    let _loan = lane.lend(duplicate(&stream));
    run(stream, (frames, lane), peer, &shared.regions).await
}

/// Cuts `pages` of a chunk into ranges of about `PAYLOAD_BYTES`; one empty range for no pages.
fn frame_ranges(pages: usize, page_bytes: u64) -> Vec<Range<usize>> {
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
async fn run(
    mut stream: Stream,
    (frames, lane): (&FrameQueue, &Lane),
    peer: &OutboundPeer,
    regions: &[Region],
) -> io::Result<()> {
    let mut clear = Vec::new();
    loop {
        // The reader says nothing; that it has gone, or has refused this process, is known before the next frame.
        let mut said = [0];
        let next = async { frames.lock().await.recv().await };
        let next = tokio::select! {
            job = next => Some(job),
            () = lane.has_begun() => None,
            read = stream.read(&mut said) => {
                let is_broken = |error: &io::Error| error.kind() != io::ErrorKind::UnexpectedEof;
                return Err(read.err().filter(is_broken).unwrap_or_else(|| {
                    io::Error::other("the peer closed the connection")
                }));
            }
        };
        let (_claim, begun) = lane.claim();
        if let Some(frame) = begun {
            write_frame(&mut stream, frame, peer, regions, &mut clear).await?;
        }
        match next {
            Some(Some(job)) if job.room.fence().enter().is_some() => {
                let frame = OutgoingFrame::new(job, &peer.plan);
                frame.count_plan(peer);
                write_frame(&mut stream, frame, peer, regions, &mut clear).await?;
            }
            Some(None) => return Ok(()),
            Some(Some(_)) | None => {}
        }
    }
}

/// Writes what is left of a frame.
async fn write_frame(
    stream: &mut Stream,
    mut frame: OutgoingFrame,
    peer: &OutboundPeer,
    regions: &[Region],
    clear: &mut Vec<u8>,
) -> io::Result<()> {
    stream.write_all(frame.header_left()).await?;
    let valid = write_payload(stream, &mut frame, regions, clear).await?;
    if valid {
        // Before the trailer: decode may confirm the room as soon as it has read that.
        frame.count_written(peer);
    }
    let trailer = if valid { VALID } else { VOID };
    stream.write_all(&[trailer]).await?;
    stream.flush().await
}

/// Writes the payload from the room's pages for as long as the room's fence is open, and filler
/// after that, so that the next frame starts where the reader expects it. True if all was the room's.
async fn write_payload(
    stream: &mut Stream,
    frame: &mut OutgoingFrame,
    regions: &[Region],
    clear: &mut Vec<u8>,
) -> io::Result<bool> {
    let OutgoingFrame { job, cursor, .. } = frame;
    while !cursor.is_done() {
        match write_some(stream, job.room.fence(), cursor, regions, clear).await {
            Ok(true) => {}
            Ok(false) => {
                fill(stream, cursor.left()).await?;
                return Ok(false);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                let memory =
                    of_memory(&error).map(|memory| FailureReason::copy(job.room.id(), memory));
                job.room.fail(memory.ok_or(error)?);
                fill(stream, cursor.left()).await?;
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Writes some of what is left from the room's pages; false if its fence is closed. What is copied first is copied
/// while the fence is open.
async fn write_some(
    stream: &mut Stream,
    fence: &Fence,
    cursor: &mut SpanCursor,
    regions: &[Region],
    clear: &mut Vec<u8>,
) -> io::Result<bool> {
    if let Stream::Plain(tcp) = stream
        && let Some(socket) = kernel(tcp)
    {
        socket.writable().await?;
        let Some(_guard) = fence.enter() else {
            return Ok(false);
        };
        let write = || cursor.write_some(socket.as_fd(), regions);
        socket.try_io(Interest::WRITABLE, write)?;
        return Ok(true);
    }
    let copied = {
        let Some(_guard) = fence.enter() else {
            return Ok(false);
        };
        clear.resize(CLEAR_BYTES, 0);
        let copied = cursor.copy_out(clear, regions);
        copied.map_err(io::Error::other)?
    };
    stream.write_all(&clear[..copied]).await?;
    Ok(true)
}

async fn fill(stream: &mut Stream, bytes: u64) -> io::Result<()> {
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

#[cfg(test)]
mod tests;
