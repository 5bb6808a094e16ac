//! Push over RDMA: prefill's NICs write straight from registered memory into decode's, and no
//! processor copies a byte.
//!
//! A rail is a NIC here, a NIC there and a few queue pairs (lanes) between them; `pd_protocol`'s
//! `control/rail.rs` says how it comes up and goes down. Prefill cuts a chunk into pieces and spreads
//! them over the lanes (`dispatch.rs`). After the last piece of a room each lane that carried bytes of
//! it ends with an immediate (`immediate.rs`) that names the room's row and the number of such lanes;
//! decode counts them (`receiver.rs`). A lane delivers in order, so then all bytes are there.
//!
//! When are decode's pages its own again? When nothing can land in them any more: all lanes have
//! ended, or prefill says that it writes no more for the room, or decode's own end of the lanes is
//! gone. A rail that fails takes its pieces along to others, but a room that used it ends there only
//! after decode has destroyed its ends of it: what may still be on the way is then refused.

pub(crate) mod completions;
pub(crate) mod connecting;
pub(crate) mod dispatch;
pub(crate) mod fabric;
pub(crate) mod immediate;
pub(crate) mod receiver;
pub(crate) mod sessions;
pub(crate) mod wire;
pub(crate) mod writer;
