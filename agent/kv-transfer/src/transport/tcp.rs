//! Push over TCP: prefill writes straight from registered memory (`writer.rs`), decode reads straight into it
//! (`reader.rs`).
//! A frame names a room, its generation and which pages of the room's list it carries; decode
//! derives the addresses from what it offered, so a peer cannot name one. Each step of a read
//! enters the room's fence, so an abort waits for no peer.

pub(crate) mod frame;
pub(crate) mod reader;
pub(crate) mod writer;
