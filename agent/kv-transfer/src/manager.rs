//! `KVManager`: one per rank. It owns the threads that move bytes and messages, and opens senders
//! (prefill) or receivers (decode). Everything else hangs on the side it serves.

use crate::config::KvManagerConfig;
use crate::decode_side::DecodeSide;
use crate::decode_side::room::Reclaimed;
use crate::memory::{Region, RegionError};
use crate::prefill_side::PrefillSide;
use crate::receiver::{KvReceiver, ReceiverRequest};
use crate::sender::{KvSender, SenderRequest};
use crate::stage::TestFailures;
use pd_protocol::BootstrapRoom;
use pd_protocol::layout::LayoutError;
use pd_protocol::workers::Role;
use std::sync::Arc;

/// See the module's header. Dropping it ends every room and thread.
pub struct KvManager {
    side: Side,
    runtime: Option<tokio::runtime::Runtime>,
}

enum Side {
    Prefill(Arc<PrefillSide>),
    Decode(Arc<DecodeSide>),
}

/// What both sides share: configuration, own regions, own names.
pub(crate) struct Shared {
    pub(crate) config: KvManagerConfig,
    /// KV cuts, then states, then the metadata rows: the numbering of plans.
    pub(crate) regions: Vec<Region>,
    pub(crate) handle: tokio::runtime::Handle,
    pub(crate) test_failures: TestFailures,
}

/// Why a manager does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("a monolithic worker transfers nothing; start a manager for prefill or decode")]
    Monolithic,
    #[error("this rank's KV layout: {0}")]
    Layout(#[from] LayoutError),
    #[error("KV region {index} has {actual} bytes, but its layout needs {expected}")]
    RegionLength {
        index: usize,
        actual: u64,
        expected: u64,
    },
    #[error("the layout describes {expected} regions, but {actual} were given")]
    RegionCount { actual: usize, expected: usize },
    #[error("memory of the KV transfer itself: {0}")]
    Memory(RegionError),
    #[error("cannot start the threads of the KV transfer: {0}")]
    Threads(std::io::Error),
    #[error("cannot listen on {host}: {source}")]
    Listen {
        host: std::net::IpAddr,
        source: std::io::Error,
    },
}

/// Why a room is not opened. The room that stands in the way is not affected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("bootstrap_room {0} is in use or was used a moment ago; draw a new one")]
    DuplicateRoom(BootstrapRoom),
    #[error("a {0} worker opens no {1}")]
    WrongRole(&'static str, &'static str),
}

// === impl KvManager ===

impl KvManager {
    /// Starts the threads and listeners of one rank.
    ///
    /// # Errors
    /// The memory does not match its layout, or a thread or listener is refused.
    pub fn start(config: KvManagerConfig) -> Result<Self, StartError> {
        let regions = checked_regions(&config)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(config.transfer.worker_threads.max(1))
            .thread_name("pd-kv-transfer")
            .enable_all()
            .build()
            .map_err(StartError::Threads)?;
        let test_failures = TestFailures::new(
            config.transfer.test_failure_prob,
            config.transfer.test_failure_seed,
        );
        let shared = Arc::new(Shared {
            config,
            regions,
            handle: runtime.handle().clone(),
            test_failures,
        });
        let (started_tx, started_rx) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let side = match shared.config.role {
                Role::Prefill => PrefillSide::start(shared).await.map(Side::Prefill),
                Role::Decode => DecodeSide::start(shared).await.map(Side::Decode),
                Role::Null => Err(StartError::Monolithic),
            };
            // The receiver waits below for as long as this task lives.
            let _ = started_tx.send(side);
        });
        let side = started_rx
            .recv()
            .map_err(|_| StartError::Threads(std::io::ErrorKind::BrokenPipe.into()))??;
        Ok(Self {
            side,
            runtime: Some(runtime),
        })
    }

    /// Prefill: opens a room.
    ///
    /// # Errors
    /// The room is known already, or this is a decode worker.
    pub fn sender(&self, request: SenderRequest) -> Result<KvSender, OpenError> {
        match &self.side {
            Side::Prefill(side) => side.open(request),
            Side::Decode(_) => Err(OpenError::WrongRole("decode", "sender")),
        }
    }

    /// Decode: opens a room and starts to look for its prefill.
    ///
    /// # Errors
    /// The room is known already, or this is a prefill worker.
    pub fn receiver(&self, request: ReceiverRequest) -> Result<KvReceiver, OpenError> {
        match &self.side {
            Side::Decode(side) => side.open(request),
            Side::Prefill(_) => Err(OpenError::WrongRole("prefill", "receiver")),
        }
    }

    /// Memory of receivers that were dropped before it was released, now released.
    pub fn take_reclaimed(&self) -> Vec<Reclaimed> {
        match &self.side {
            Side::Decode(side) => side.take_reclaimed(),
            Side::Prefill(_) => Vec::new(),
        }
    }
}

impl Drop for KvManager {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn checked_regions(config: &KvManagerConfig) -> Result<Vec<Region>, StartError> {
    let kv = &config.kv;
    kv.layout.validate()?;
    let expected = kv.layout.region_lens();
    let given = kv.kv.iter().chain(&kv.states).chain([kv.metadata.region()]);
    let regions: Vec<Region> = given.cloned().collect();
    if regions.len() != expected.len() {
        return Err(StartError::RegionCount {
            actual: regions.len(),
            expected: expected.len(),
        });
    }
    for (index, (region, &expected)) in regions.iter().zip(&expected).enumerate() {
        let actual = region.len() as u64;
        if actual < expected {
            return Err(StartError::RegionLength {
                index,
                actual,
                expected,
            });
        }
    }
    Ok(regions)
}
