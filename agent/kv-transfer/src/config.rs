//! What the agent and the engine configure in a `KvManager`: memory, identity, transport, bounds.

use crate::memory::Region;
use crate::metadata_buffers::MetadataBuffers;
use crate::metrics::TransferMetrics;
use crate::transport::rdma::dispatch::piece::SOURCES_MAX;
use crate::transport_report::TransportReport;
use pd_identity::Peers;
use pd_protocol::layout::{KvLayout, ParallelLayout, RankId};
use pd_protocol::{Role, Transport};
use pd_verbs::{OpenError, Verbs};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Called, from any thread, when some room changed; where it became `Transferring`, only if its bytes take a while. It must
/// neither block nor call the manager: send on a channel.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// SGLang's `KVArgs`: the memory of one rank and what its bytes mean.
#[derive(Clone, Debug)]
pub struct KvArgs {
    pub layout: KvLayout,
    /// One region per cut, in the order of [`KvLayout::regions`].
    pub kv: Vec<Region>,
    /// One region per entry of [`KvLayout::states`].
    pub states: Vec<Region>,
    pub metadata: MetadataBuffers,
}

/// Which transports a process offers or takes; `--disaggregation-transfer-backend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportChoice {
    /// The fastest that a pair shares: shm on one host, rdma where the NICs reach each other, else tcp.
    Auto,
    Only(Transport),
    /// Moves nothing; for warm-up and tests.
    Fake,
}

/// Bounds and switches of a manager.
#[derive(Clone, Debug)]
pub struct TransferConfig {
    pub transport: TransportChoice,
    /// Address that peers dial; control, liveness and data ports are bound on it.
    pub host: IpAddr,
    /// Threads that move bytes and messages.
    pub worker_threads: usize,
    /// Where bytes and messages are moved instead, by no thread of its own: rooms end with this runtime, not with the
    /// manager.
    pub runtime: Option<Handle>,
    /// Data connections to each decode rank over tcp.
    pub tcp_streams: usize,
    pub rdma: RdmaConfig,
    /// Where prefill hands its memory over to decode on the same host, in a directory that both see, by any
    /// path; without one, within their network namespace. `--disaggregation-shm-dir`.
    pub shm_dir: Option<PathBuf>,
    /// How this process and its peers know each other; without a key anybody is one.
    pub peers: Peers,
    /// Data connections over tcp are encrypted where peers have a key. Both sides must say the same.
    pub tcp_encryption: bool,
    /// A peer that stays silent for `heartbeat_interval * heartbeat_failures` is lost.
    /// Source: docs/sglang-protocol.md#timeouts.
    pub heartbeat_interval: Duration,
    pub heartbeat_failures: u32,
    /// Decode: filled with the transport to each prefill rank.
    pub transport_report: TransportReport,
    /// Metrics, which the caller registers. Each manager has its own.
    pub metrics: TransferMetrics,
    /// Opening a room until both sides know each other.
    pub bootstrap_timeout: Duration,
    /// Decode: `init` until the first byte.
    pub waiting_timeout: Duration,
    /// First byte (prefill: last chunk handed over) until `Success`.
    pub transfer_timeout: Duration,
    /// Unanswered control messages are sent again after this.
    pub resend_interval: Duration,
    /// Probability in 0..=1 that a room fails on purpose at one of its stages.
    pub test_failure_prob: f64,
    /// Seed of the draw of `test_failure_prob`.
    pub test_failure_seed: u64,
}

/// NICs and bounds of the rdma transport.
#[derive(Clone, Debug)]
pub struct RdmaConfig {
    /// What opens the library of the devices, the system's.
    pub library: fn() -> Result<Verbs, OpenError>,
    /// RDMA devices by name, the preferred first; all there are if empty.
    pub devices: Vec<String>,
    /// Row of a port's GID table; chosen if `None`.
    pub gid_index: Option<u8>,
    /// The IP header's traffic class on RoCE.
    pub traffic_class: u8,
    /// InfiniBand's.
    pub service_level: u8,
    /// Queue pairs between two NICs.
    pub lanes: usize,
    /// Bytes on their way to one peer at once.
    pub in_flight_bytes: u64,
    /// Ranges that one write gathers, as far as the NICs can: 1 to [`RdmaConfig::GATHER_MAX`].
    pub gather_max: usize,
}

/// Everything a manager needs to start.
#[derive(Clone)]
pub struct KvManagerConfig {
    /// Prefill sends, decode receives; a unified worker has no manager.
    pub role: Role,
    pub rank: RankId,
    pub parallel: ParallelLayout,
    pub kv: KvArgs,
    /// Digest of all that must be equal for KV bytes to mean the same.
    pub kv_compat: String,
    /// Names this process; changes with every start.
    pub boot_id: String,
    /// Prefill: `host:port` of the bootstrap server to register with.
    pub bootstrap_addr: Option<BootstrapAddr>,
    /// Prefill: port of the worker's HTTP API, announced to decode.
    pub http_port: Option<u16>,
    pub transfer: TransferConfig,
    pub waker: Waker,
}

/// Where a prefill's bootstrap server listens; SGLang's `bootstrap_addr`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BootstrapAddr {
    pub host: String,
    pub port: u16,
}

// === impl TransportChoice ===

impl TransportChoice {
    /// Whether a pair may come to use `transport`.
    pub fn allows(self, transport: Transport) -> bool {
        match self {
            Self::Auto => true,
            Self::Only(only) => only == transport,
            Self::Fake => false,
        }
    }
}

// === impl RdmaConfig ===

impl RdmaConfig {
    /// Most ranges that one write gathers.
    pub const GATHER_MAX: usize = SOURCES_MAX;
}

impl Default for RdmaConfig {
    fn default() -> Self {
        Self {
            library: Verbs::open,
            devices: Vec::new(),
            gid_index: None,
            traffic_class: 0,
            service_level: 0,
            lanes: 2,
            in_flight_bytes: 64 << 20,
            gather_max: Self::GATHER_MAX,
        }
    }
}

// === impl TransferConfig ===

impl TransferConfig {
    /// The reference's bounds, on `host`.
    pub fn new(host: IpAddr) -> Self {
        Self {
            transport: TransportChoice::Auto,
            host,
            worker_threads: 2,
            runtime: None,
            tcp_streams: 4,
            rdma: RdmaConfig::default(),
            shm_dir: None,
            peers: Peers::Plain,
            tcp_encryption: true,
            heartbeat_interval: Duration::from_secs(5),
            heartbeat_failures: 2,
            transport_report: TransportReport::default(),
            metrics: TransferMetrics::default(),
            bootstrap_timeout: Duration::from_secs(300),
            waiting_timeout: Duration::from_secs(300),
            transfer_timeout: Duration::from_secs(300),
            resend_interval: Duration::from_secs(1),
            test_failure_prob: 0.0,
            test_failure_seed: 0,
        }
    }

    pub(crate) fn shares_memory(&self) -> bool {
        self.transport.allows(Transport::Shm)
    }

    /// A peer that is silent for longer is frozen or cut off.
    pub(crate) fn patience(&self) -> Duration {
        self.heartbeat_interval * self.heartbeat_failures.max(1)
    }
}

// === impl BootstrapAddr ===

impl std::fmt::Display for BootstrapAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') && !self.host.starts_with('[') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl std::fmt::Debug for KvManagerConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KvManagerConfig")
            .field("role", &self.role)
            .field("rank", &self.rank)
            .field("boot_id", &self.boot_id)
            .field("transfer", &self.transfer)
            .finish_non_exhaustive()
    }
}

/// How logs and metrics name a rank that is asked for, or listens, at an address.
pub(crate) fn rank_name(addr: &BootstrapAddr, rank: RankId) -> String {
    let RankId {
        dp_rank,
        cp_rank,
        tp_rank,
        pp_rank,
    } = rank;
    format!("{addr}/{dp_rank}.{cp_rank}.{tp_rank}.{pp_rank}")
}
