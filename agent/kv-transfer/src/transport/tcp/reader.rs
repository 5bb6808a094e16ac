//! Decode's end of a data connection.

use super::frame::{FrameHeader, HEADER_BYTES, VALID};
use crate::failure::FailureReason;
use crate::memory::Region;
use crate::memory::vectored::{SpanCursor, of_memory};
use crate::net::TcpStream;
use crate::transport::incoming::{InboundPeer, InboundRooms, IncomingPart};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, Interest};

/// Bytes read at once of an unwanted payload.
const SINK_BYTES: usize = 256 << 10;

/// Reads frames until the peer closes or breaks the protocol.
pub(crate) async fn run(
    rooms: &Arc<dyn InboundRooms>,
    regions: &[Region],
    peer: &InboundPeer,
    mut stream: TcpStream,
) -> io::Result<()> {
    let mut header = [0; HEADER_BYTES];
    loop {
        match stream.read_exact(&mut header).await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        };
        let header = FrameHeader::decode(&header).map_err(io::Error::other)?;
        let part = Arc::clone(rooms).locate_frame(&peer.session_id, &header);
        let landed = match &part {
            Some(part) => read_payload(regions, part, &mut stream, header.payload_bytes).await?,
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
    stream: &mut TcpStream,
    payload_bytes: u64,
) -> io::Result<bool> {
    let room = &part.room;
    let mut cursor = SpanCursor::new(part.spans.clone());
    debug_assert_eq!(cursor.left(), payload_bytes);
    while !cursor.is_done() {
        stream.readable().await?;
        let Some(guard) = room.fence().enter() else {
            sink(stream, cursor.left()).await?;
            return Ok(false);
        };
        let read = stream.try_io(Interest::READABLE, || {
            cursor.read_some(stream.as_fd(), regions)
        });
        drop(guard);
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
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

async fn sink(stream: &mut TcpStream, bytes: u64) -> io::Result<()> {
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
