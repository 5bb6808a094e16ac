//! Push over RDMA: prefill's NICs write straight from registered memory into decode's, and no
//! processor copies a byte.
//!
//! A rail is a NIC here, a NIC there and a few queue pairs (lanes) between them; `pd_protocol`'s
//! `control/rail.rs` says how it comes up and goes down. Decode asks for rails (`sessions.rs`). On prefill one
//! task per decode rank (`writer.rs`, its queues in `writer/handle.rs`) cuts each chunk into pieces, spreads
//! them over the lanes (`dispatch.rs`) and posts them (`writer/rail/posting.rs`). After the last piece of a
//! room each lane that carried bytes of it ends with an immediate (`immediate.rs`) that names the room's row
//! and the number of such lanes. On decode `receiver/listening.rs` takes the immediates off the completion
//! queue (`completions.rs`) and counts them (`receiver/count.rs`). A lane delivers in order, so with the last
//! of them all bytes are there, and decode's room gets `rank_arrived`.
//!
//! When are decode's pages its own again? When nothing can land in them any more: all lanes have
//! ended, or prefill says that it writes no more for the room, or decode's own end of the lanes is
//! gone. A rail that fails takes its pieces along to others, but a room that used it ends there only
//! after decode has destroyed its ends of it: what may still be on the way is then refused.

pub(crate) mod completions;
pub(crate) mod connecting;
pub(crate) mod conversion;
pub(crate) mod dispatch;
pub(crate) mod fabric;
pub(crate) mod immediate;
pub(crate) mod receiver;
pub(crate) mod sessions;
pub(crate) mod writer;
