//! Control messages to frames and back. Frames come from anyone who can reach the port: decoding
//! never panics, bounds every size and ignores fields it does not know.

use bytes::Bytes;
use pd_protocol::control::guard::{FRAME_BYTES_MAX, FRAMES_MAX};
use pd_protocol::control::{ControlMessage, GUARD, Kind, VERSION};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of a frame that an error shows: a stranger's would fill the log.
const SHOWN_BYTES_MAX: usize = 32;
/// Frames before the page lists: guard, version, kind, body.
const HEAD_FRAMES: usize = 4;

/// Why frames are no message of ours.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("the first frame is not the guard of this protocol")]
    Guard,
    #[error(
        "wire version is \"{0}\", but this side speaks \"{own}\"; run one release on both sides",
        own = VERSION.escape_ascii()
    )]
    Version(String),
    #[error("{0} frames; a message has {HEAD_FRAMES} to {FRAMES_MAX}")]
    FrameCount(usize),
    #[error("a frame of {0} bytes is beyond the bound of {FRAME_BYTES_MAX}")]
    FrameLength(usize),
    #[error("kind \"{0}\" is not known")]
    Kind(String),
    #[error("body of {kind}: {source}")]
    Body {
        kind: &'static str,
        source: rmp_serde::decode::Error,
    },
    #[error("a page list of {0} bytes is no list of u32")]
    PageList(usize),
}

pub(crate) fn encode(message: &ControlMessage) -> Vec<Bytes> {
    match message {
        ControlMessage::Register(m) => frames(Kind::Register, m, &[]),
        ControlMessage::RegisterAck(m) => frames(Kind::RegisterAck, m, &[]),
        ControlMessage::RailsWanted(m) => frames(Kind::RailsWanted, m, &[]),
        ControlMessage::RailOffer(m) => frames(Kind::RailOffer, m, &[]),
        ControlMessage::RailAnswer(m) => frames(Kind::RailAnswer, m, &[]),
        ControlMessage::RailDown(m) => frames(Kind::RailDown, m, &[]),
        ControlMessage::RailClosed(m) => frames(Kind::RailClosed, m, &[]),
        ControlMessage::TransferInfo(m) => {
            let lists = lists(&m.page_indices, &m.state_indices);
            frames(Kind::TransferInfo, m, &lists)
        }
        ControlMessage::ChunkReady(m) => {
            let lists = lists(&m.page_indices, &m.state_indices);
            frames(Kind::ChunkReady, m, &lists)
        }
        ControlMessage::ChunkDone(m) => frames(Kind::ChunkDone, m, &[]),
        ControlMessage::Status(m) => frames(Kind::Status, m, &[]),
        ControlMessage::Abort(m) => frames(Kind::Abort, m, &[]),
        ControlMessage::AbortAck(m) => frames(Kind::AbortAck, m, &[]),
    }
}

/// A room's pages, then the items of each of its states.
fn lists<'a>(pages: &'a Vec<u32>, states: &'a [Vec<u32>]) -> Vec<&'a Vec<u32>> {
    std::iter::once(pages).chain(states).collect()
}

fn frames<T: Serialize>(kind: Kind, body: &T, lists: &[&Vec<u32>]) -> Vec<Bytes> {
    let body = rmp_serde::to_vec_named(body).expect("a control message is MessagePack");
    let mut frames = vec![
        Bytes::from_static(GUARD),
        Bytes::from_static(VERSION),
        Bytes::from_static(kind.name().as_bytes()),
        Bytes::from(body),
    ];
    let list = |list: &&Vec<u32>| list.iter().flat_map(|page| page.to_le_bytes()).collect();
    frames.extend(lists.iter().map(list));
    frames
}

pub(crate) fn decode(frames: &[Bytes]) -> Result<ControlMessage, FrameError> {
    if frames.first().is_none_or(|guard| guard != GUARD) {
        return Err(FrameError::Guard);
    }
    if !(HEAD_FRAMES..=FRAMES_MAX).contains(&frames.len()) {
        return Err(FrameError::FrameCount(frames.len()));
    }
    if let Some(long) = frames.iter().find(|frame| frame.len() > FRAME_BYTES_MAX) {
        return Err(FrameError::FrameLength(long.len()));
    }
    if frames[1] != VERSION {
        return Err(FrameError::Version(shown(&frames[1])));
    }
    let kind = Kind::from_name(&frames[2]).ok_or_else(|| FrameError::Kind(shown(&frames[2])))?;
    decode_body(kind, &frames[3], &frames[HEAD_FRAMES..])
}

fn shown(frame: &[u8]) -> String {
    let head = &frame[..frame.len().min(SHOWN_BYTES_MAX)];
    head.escape_ascii().to_string()
}

fn decode_body(kind: Kind, bytes: &[u8], lists: &[Bytes]) -> Result<ControlMessage, FrameError> {
    Ok(match kind {
        Kind::Register => ControlMessage::Register(body(kind, bytes)?),
        Kind::RegisterAck => ControlMessage::RegisterAck(body(kind, bytes)?),
        Kind::RailsWanted => ControlMessage::RailsWanted(body(kind, bytes)?),
        Kind::RailOffer => ControlMessage::RailOffer(body(kind, bytes)?),
        Kind::RailAnswer => ControlMessage::RailAnswer(body(kind, bytes)?),
        Kind::RailDown => ControlMessage::RailDown(body(kind, bytes)?),
        Kind::RailClosed => ControlMessage::RailClosed(body(kind, bytes)?),
        Kind::TransferInfo => {
            let mut message: pd_protocol::control::TransferInfo = body(kind, bytes)?;
            (message.page_indices, message.state_indices) = page_lists(lists)?;
            ControlMessage::TransferInfo(message)
        }
        Kind::ChunkReady => {
            let mut message: pd_protocol::control::ChunkReady = body(kind, bytes)?;
            (message.page_indices, message.state_indices) = page_lists(lists)?;
            ControlMessage::ChunkReady(message)
        }
        Kind::ChunkDone => ControlMessage::ChunkDone(body(kind, bytes)?),
        Kind::Status => ControlMessage::Status(body(kind, bytes)?),
        Kind::Abort => ControlMessage::Abort(body(kind, bytes)?),
        Kind::AbortAck => ControlMessage::AbortAck(body(kind, bytes)?),
    })
}

fn body<T: DeserializeOwned>(kind: Kind, bytes: &[u8]) -> Result<T, FrameError> {
    rmp_serde::from_slice(bytes).map_err(|source| FrameError::Body {
        kind: kind.name(),
        source,
    })
}

fn page_lists(frames: &[Bytes]) -> Result<(Vec<u32>, Vec<Vec<u32>>), FrameError> {
    let mut lists = frames.iter().map(page_list);
    let pages = lists.next().transpose()?.unwrap_or_default();
    Ok((pages, lists.collect::<Result<_, _>>()?))
}

fn page_list(bytes: &Bytes) -> Result<Vec<u32>, FrameError> {
    if !bytes.len().is_multiple_of(4) {
        return Err(FrameError::PageList(bytes.len()));
    }
    let word = |word: &[u8]| u32::from_le_bytes(word.try_into().expect("chunks of 4 bytes"));
    Ok(bytes.chunks_exact(4).map(word).collect())
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
