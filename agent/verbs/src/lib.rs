//! One-sided RDMA over reliable connections: libibverbs, made safe.
//!
//! An object holds the objects it was made from, so nothing outlives what it uses: a [`Device`] its
//! library, a [`ProtectionDomain`] its device, a [`MemoryRegion`] its domain and its memory, a
//! [`QueuePair`] its domain and its [`CompletionQueue`]s. Queues cannot overflow: posts take what
//! fits, and completions free it (`work_queue.rs`). This crate knows no pages, peers or threads;
//! its callers decide which queue pair carries what.
//!
//! # Why a binding of our own
//! libibverbs is opened at run time, so one binary runs with and without it, reports its absence,
//! and builds with only rustup and a C linker. `ibverbs` has no one-sided writes, `ibverbs-sys`
//! links the library directly, and `rdma-mummy-sys` opens it late, but through a C library that
//! needs CMake and libclang. This crate calls 24 functions and four entries of a table over a dozen
//! structures, all of an ABI that rdma-core has kept since 2005; a test checks each size, offset
//! and constant against the installed header (`ffi/tests.rs`). rdma-core 28 (2020) is enough; later
//! additions (dma-bufs, 34) are optional.
//!
//! # Features
//! `loopback`: devices within this process, for tests of crates that build on this one; never in a
//! product build.

#![allow(
    unsafe_code,
    reason = "calls into libibverbs and memory that devices write are the purpose of this crate"
)]

mod completion;
mod device;
mod endpoint;
mod error;
mod events;
mod ffi;
mod locality;
#[cfg(any(test, feature = "loopback"))]
pub mod loopback;
mod memory;
mod path;
mod port;
pub mod queue_pair;
mod status;
mod sysfs;
mod work_queue;
mod work_request;

pub use completion::{Completion, CompletionQueue, DepthError, Direction, WorkError};
pub use device::{Capabilities, ChooseError, Device, Features, OpenError, Verbs};
pub use endpoint::{Endpoint, EndpointError, Gid, Mtu};
pub use error::CallError;
pub use events::DeviceEvent;
pub use ffi::LibraryError;
pub use locality::Locality;
pub use memory::{
    DmaBuf, HostMemory, LocalRange, MemoryRegion, ProtectionDomain, RKey, RangeError, Registrable,
    Registration, RemoteAddr, RemoteRegion,
};
pub use path::{PathError, PathOptions, Retry};
pub use port::{
    GidEntry, GidKind, IpFamily, LinkLayer, LocalPort, Port, PortError, PortState, PortWish,
    choose_port,
};
pub use queue_pair::{
    ConnectError, CreateError, PostError, QueuePair, QueuePairOptions, Unconnected,
};
pub use status::WcStatus;
pub use work_request::{Write, WriteError};
