//! `KvManager`: one per rank. It owns the threads that move bytes and messages, and opens senders
//! (prefill) or receivers (decode). Everything else hangs on the side it serves.

use crate::config::{KvManagerConfig, TransferConfig, TransportChoice};
use crate::consensus::{PollBoard, PollReporter};
use crate::decode_side::DecodeSide;
use crate::decode_side::room::OfferedMemory;
use crate::error::{OpenError, StartError};
use crate::failure::FailureReason;
use crate::fault_injection::FaultInjection;
use crate::log_limit::LogLimit;
use crate::memory::Region;
use crate::prefill_side::PrefillSide;
use crate::receiver::{KvReceiver, ReceiverRequest};
use crate::sender::{KvSender, SenderRequest};
use crate::shared::Shared;
use crate::tasks::{Failure, Tasks};
use crate::transport::rdma::fabric::{Fabric, FabricError, Memory};
use crate::transport::rdma::immediate::ROWS_MAX;
use crate::transport::shm::socket::check_dir;
use futures_util::FutureExt;
use pd_protocol::Role;
use pd_protocol::Transport;
use std::sync::Arc;
use tokio::runtime::{Handle, Runtime};

/// SGLang's `KVManager`. Dropping it ends every room and thread.
pub struct KvManager {
    side: Side,
    runtime: Option<Runtime>,
}

#[derive(Clone)]
enum Side {
    Prefill(Arc<PrefillSide>),
    Decode(Arc<DecodeSide>),
}

// === impl KvManager ===

impl KvManager {
    /// Starts the threads and listeners of one rank.
    ///
    /// # Errors
    /// The memory does not match its layout, a thread or listener is refused, or only rdma is wanted and
    /// is unavailable.
    pub fn start(config: KvManagerConfig) -> Result<Self, StartError> {
        let regions = checked_regions(&config)?;
        check_shm_dir(&config.transfer)?;
        let fabric = open_fabric(&config, &regions)?;
        let (runtime, handle) = match &config.transfer.runtime {
            Some(handle) => (None, handle.clone()),
            None => own_runtime(&config.transfer)?,
        };
        let fault_injection = FaultInjection::new(
            config.transfer.test_failure_prob,
            config.transfer.test_failure_seed,
        );
        let shared = Arc::new(Shared {
            config,
            regions,
            fabric,
            tasks: Tasks::new(handle.clone()),
            fault_injection,
            log: LogLimit::default(),
        });
        let side = if runtime.is_some() {
            start_on(&handle, shared)?
        } else {
            // Within its own runtime a caller cannot wait, and binding ports does not.
            let started = start_side(shared).now_or_never();
            started.ok_or_else(|| StartError::Threads(std::io::ErrorKind::WouldBlock.into()))??
        };
        handle.spawn(side.clone().end_with_manager());
        Ok(Self { side, runtime })
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

    /// Agrees with `ranks` other ranks of this worker, on other nodes, which report to its port.
    ///
    /// # Errors
    /// The host's address cannot be listened on.
    pub fn poll_board(&self, ranks: usize) -> std::io::Result<PollBoard> {
        let shared = Arc::clone(self.shared());
        let handle = shared.tasks.handle().clone();
        handle.block_on(PollBoard::listen(shared, ranks))
    }

    /// Reports as the other rank `rank` to the [`PollBoard`] at `leader`.
    ///
    /// # Errors
    /// It is not there.
    pub fn poll_reporter(&self, leader: (&str, u16), rank: usize) -> std::io::Result<PollReporter> {
        let shared = self.shared();
        let connecting = PollReporter::connect(shared, leader, rank);
        shared.tasks.handle().block_on(connecting)
    }

    fn shared(&self) -> &Arc<Shared> {
        self.side.shared()
    }

    /// Whether this manager has failed. Its rooms then fail, too, so that no caller waits for one that hangs.
    pub fn failure(&self) -> Failure {
        self.shared().tasks.failure()
    }

    /// Resolves with the reason when this manager fails: its owner should end, and be started again.
    pub fn failed(&self) -> impl Future<Output = Arc<str>> + Send + 'static {
        self.failure().failed()
    }

    /// Memory of receivers that were dropped before it was released, now released.
    pub fn take_reclaimed(&self) -> Vec<OfferedMemory> {
        match &self.side {
            Side::Decode(side) => side.take_reclaimed(),
            Side::Prefill(_) => Vec::new(),
        }
    }
}

// === impl Side ===

impl Side {
    fn shared(&self) -> &Arc<Shared> {
        match self {
            Self::Prefill(side) => &side.shared,
            Self::Decode(side) => &side.shared,
        }
    }

    /// Fails all rooms once the manager has failed; later ones fail as they are opened.
    async fn end_with_manager(self) {
        let failure = self.shared().tasks.failure();
        let reason = FailureReason::device(&*failure.failed().await);
        match self {
            Self::Prefill(side) => side.fail_all(&reason),
            Self::Decode(side) => side.fail_all(&reason),
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

/// A manager's own threads.
fn own_runtime(transfer: &TransferConfig) -> Result<(Option<Runtime>, Handle), StartError> {
    let runtime = pd_allocator::runtime()
        .worker_threads(transfer.worker_threads.max(1))
        .thread_name("pd-kv-transfer")
        .enable_all()
        .build()
        .map_err(StartError::Threads)?;
    let handle = runtime.handle().clone();
    Ok((Some(runtime), handle))
}

async fn start_side(shared: Arc<Shared>) -> Result<Side, StartError> {
    match shared.config.role {
        Role::Prefill => PrefillSide::start(shared).await.map(Side::Prefill),
        Role::Decode => DecodeSide::start(shared).await.map(Side::Decode),
        Role::Unified => Err(StartError::Unified),
    }
}

fn start_on(handle: &Handle, shared: Arc<Shared>) -> Result<Side, StartError> {
    let (started_tx, started_rx) = std::sync::mpsc::channel();
    handle.spawn(async move {
        // The receiver waits below for as long as this task lives.
        let _ = started_tx.send(start_side(shared).await);
    });
    let started = started_rx.recv();
    started.map_err(|_| StartError::Threads(std::io::ErrorKind::BrokenPipe.into()))?
}

/// This rank's NICs; none where they are not wanted, or optional and unavailable.
fn open_fabric(
    config: &KvManagerConfig,
    regions: &[Region],
) -> Result<Option<Arc<Fabric>>, StartError> {
    let transfer = &config.transfer;
    let open = || {
        let rows = config.kv.layout.metadata_rows;
        if rows > ROWS_MAX {
            return Err(FabricError::Rows { rows });
        }
        let memory = Memory {
            regions,
            is_written: config.role == Role::Decode,
        };
        Fabric::open((transfer.rdma.library)()?, &transfer.rdma, memory)
    };
    match transfer.transport {
        TransportChoice::Only(Transport::Rdma) => Ok(Some(Arc::new(open()?))),
        TransportChoice::Auto => Ok(open()
            .inspect_err(|why| tracing::info!(%why, "no RDMA"))
            .ok()
            .map(Arc::new)),
        TransportChoice::Only(Transport::Shm | Transport::Tcp) | TransportChoice::Fake => Ok(None),
    }
}

/// A directory that is named by mistake is known at once, on either side.
fn check_shm_dir(transfer: &TransferConfig) -> Result<(), StartError> {
    match &transfer.shm_dir {
        Some(dir) if transfer.shares_memory() => check_dir(dir).map_err(|reason| {
            let dir = dir.clone();
            StartError::ShmDir { dir, reason }
        }),
        _ => Ok(()),
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
