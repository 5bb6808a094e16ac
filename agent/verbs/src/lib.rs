//! One-sided RDMA over reliable connections: libibverbs, made safe.
//!
//! What is made on a device holds what it was made from, so nothing outlives what it uses: a
//! [`Device`] its library, a [`ProtectionDomain`] its device, a [`MemoryRegion`] its domain and its
//! memory, a [`QueuePair`] its domain and its [`CompletionQueue`]s. Queues cannot overflow: posts
//! take what fits, and completions free it (`work_queue.rs`). This crate knows no page, no peer and no
//! thread; which queue pair carries what is its callers' business.
//!
//! # Why a binding of our own
//! libibverbs is opened at run time, so one binary runs with it and without it, says so where it is
//! missing, and builds with rustup and a C linker alone. `ibverbs` has no one-sided writes,
//! `ibverbs-sys` links the library hard, and `rdma-mummy-sys` opens it late, but by a C library that
//! CMake and libclang build. Called here are 24 functions and four entries of
//! a table over a dozen structures, all of an ABI that rdma-core has kept since 2005; a test holds
//! each size, offset and constant against the header that is installed (`ffi/tests.rs`). rdma-core 28
//! (2020) is enough; what came later (dma-bufs, 34) is looked for and missed without harm.
//!
//! # Features
//! `loopback`: devices within this process, for tests of what is built on this crate; never in a
//! product build.

#![allow(
    unsafe_code,
    reason = "calls into libibverbs and memory that devices write are what this crate is for"
)]

mod completion;
mod device;
mod endpoint;
mod error;
mod events;
mod ffi;
#[cfg(any(test, feature = "loopback"))]
pub mod loopback;
mod memory;
mod path;
mod place;
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
pub use memory::{
    DmaBuf, HostMemory, LocalRange, MemoryRegion, ProtectionDomain, RKey, RangeError, Registrable,
    Registration, RemoteAddr, RemoteRegion,
};
pub use path::{PathError, PathOptions, Retry};
pub use place::Place;
pub use port::{
    GidEntry, GidKind, IpFamily, LinkLayer, LocalPort, Port, PortError, PortState, PortWish,
    choose_port,
};
pub use queue_pair::{
    ConnectError, CreateError, PostError, QueuePair, QueuePairOptions, Unconnected,
};
pub use status::WcStatus;
pub use work_request::{Write, WriteError};
