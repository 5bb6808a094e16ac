//! The control plane: ZMQ multiparts, pushed from a peer's [`outbox`] to the [`listener`] of another.

pub(crate) mod codec;
pub(crate) mod listener;
pub(crate) mod outbox;
mod zmtp;
