//! How bytes travel, by direction: `rdma` and `tcp` push from prefill into decode's memory, `shm` lets
//! decode pull from prefill's. Prefill sends by `outbound.rs`, decode receives by `inbound.rs`; `outgoing.rs` and
//! `incoming.rs` hold the traits by which a transport reports to either side. A fake room has no destination at
//! all: its side ends it by itself.

pub(crate) mod inbound;
pub(crate) mod incoming;
pub(crate) mod negotiate;
pub(crate) mod outbound;
pub(crate) mod outgoing;
pub(crate) mod rdma;
pub(crate) mod shm;
pub(crate) mod tcp;
