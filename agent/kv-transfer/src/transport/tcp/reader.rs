//! Decode's end of a data connection.

use super::frame::{DIRECT_BYTES_MAX, FrameHeader, HEADER_BYTES, VALID};
use crate::failure::FailureReason;
use crate::memory::Region;
use crate::memory::vectored::{SpanCursor, of_memory};
use crate::net::{Stream, kernel};
use crate::transport::incoming::{InboundPeer, InboundRoom, InboundRooms, IncomingPart};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, Interest};

/// Bytes read at once of an unwanted payload.
const SINK_BYTES: usize = 256 << 10;
/// Bytes of a payload that does not come from the kernel's socket, such as an encrypted one, on their way to memory: four
/// records of TLS.
const CLEAR_BYTES: usize = 64 << 10;

/// Times that a thread looks for a small payload: about 8 us.
const LOOKS: usize = 16;

/// Reads frames until the peer closes or breaks the protocol.
pub(crate) async fn run(
    rooms: &Arc<dyn InboundRooms>,
    regions: &[Region],
    peer: &InboundPeer,
    mut stream: Stream,
) -> io::Result<()> {
    let mut header = [0; HEADER_BYTES];
    let mut clear = Vec::new();
    loop {
        match stream.read_exact(&mut header).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        };
        let header = FrameHeader::decode(&header).map_err(io::Error::other)?;
        let part = Arc::clone(rooms).locate_frame(&peer.session_id, &header);
        debug_assert!(
            part.as_ref()
                .is_none_or(|part| part.bytes == header.payload_bytes)
        );
        let landed = match &part {
            Some(part) => read_payload(regions, part, &mut stream, &mut clear).await?,
            None => {
                sink(&mut stream, header.payload_bytes).await?;
                false
            }
        };
        let valid = stream.read_u8().await? == VALID;
        if let Some(part) = part.filter(|_| landed && valid) {
            peer.metrics.wrote(peer.transport, part.bytes, 1);
            Arc::clone(&part.room).part_arrived(&part);
        }
    }
}

/// Reads a payload into the room's pages for as long as the room's fence is open; what follows is
/// dropped. True if all of it landed.
async fn read_payload(
    regions: &[Region],
    part: &IncomingPart,
    stream: &mut Stream,
    clear: &mut Vec<u8>,
) -> io::Result<bool> {
    let room = &part.room;
    let mut cursor = SpanCursor::new(part.spans.clone());
    // A small payload follows its header within the time of a copy.
    let is_small = part.bytes <= DIRECT_BYTES_MAX;
    let mut looks = if is_small { LOOKS } else { 1 };
    while !cursor.is_done() {
        let looks = std::mem::replace(&mut looks, 1);
        match read_some((regions, room), stream, &mut cursor, looks, clear).await {
            Ok(true) => {}
            Ok(false) => {
                sink(stream, cursor.left()).await?;
                return Ok(false);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => room.announce(),
            Err(error) => {
                let memory = of_memory(&error).map(|memory| FailureReason::copy(room.id(), memory));
                Arc::clone(room).fail(memory.ok_or(error)?);
                sink(stream, cursor.left()).await?;
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Reads some of what is left into the room's pages; false if its fence is closed.
async fn read_some(
    (regions, room): (&[Region], &Arc<dyn InboundRoom>),
    stream: &mut Stream,
    cursor: &mut SpanCursor,
    looks: usize,
    clear: &mut Vec<u8>,
) -> io::Result<bool> {
    if let Stream::Plain(tcp) = stream
        && let Some(socket) = kernel(tcp)
    {
        socket.readable().await?;
        let Some(_guard) = room.fence().enter() else {
            return Ok(false);
        };
        let read = || read_soon(cursor, socket.as_fd(), regions, looks);
        socket.try_io(Interest::READABLE, read)?;
        return Ok(true);
    }
    room.announce();
    clear.resize(CLEAR_BYTES, 0);
    let left = usize::try_from(cursor.left()).unwrap_or(CLEAR_BYTES);
    let read = stream.read(&mut clear[..left.min(CLEAR_BYTES)]).await?;
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let Some(_guard) = room.fence().enter() else {
        cursor.skip(read);
        return Ok(false);
    };
    let landed = cursor.copy_in(&clear[..read], regions);
    landed.map_err(io::Error::other)?;
    Ok(true)
}

/// Reads what is there, and looks for it so many times: to wait costs as much as a few looks, and then the time to wake.
fn read_soon(
    cursor: &mut SpanCursor,
    socket: BorrowedFd<'_>,
    regions: &[Region],
    looks: usize,
) -> io::Result<usize> {
    let mut read = cursor.read_some(socket, regions);
    for _ in 1..looks {
        match &read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => break,
        }
        read = cursor.read_some(socket, regions);
    }
    read
}

async fn sink(stream: &mut Stream, bytes: u64) -> io::Result<()> {
    let mut scratch = vec![0; SINK_BYTES.min(usize::try_from(bytes).unwrap_or(SINK_BYTES))];
    let mut left = bytes;
    while left > 0 {
        let part = scratch
            .len()
            .min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = stream.read(&mut scratch[..part]).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= read as u64;
    }
    Ok(())
}
