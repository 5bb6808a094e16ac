//! The control plane: ZMQ PUSH/PULL multiparts between managers.

pub(crate) mod codec;
pub(crate) mod gate;
pub(crate) mod socket;
