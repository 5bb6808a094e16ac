//! A prefill and a decode manager over one bootstrap server, with memory whose bytes are known.

use super::bootstrap::{Bootstrap, mk_bootstrap_among};
use super::figures::Figures;
use crate::config::{BootstrapAddr, KvArgs, KvManagerConfig, TransferConfig, TransportChoice};
use crate::{
    KvManager, KvReceiver, KvSender, LastChunk, MetadataBuffers, ReceiverRequest, Region,
    SenderRequest, StartError, TransferMetrics, TransportReport,
};
use parking_lot::Mutex;
use pd_protocol::Role;
use pd_protocol::Transport;
use pd_protocol::layout::{
    KvCut, KvDtype, KvGroup, KvLayout, PAGE_ORDER, ParallelLayout, RankId, StateLayout,
    StateTensor, StateType,
};
use pd_protocol::metadata::{MetadataLayout, MetadataRow};
use pd_protocol::{BootstrapRoom, KvPoll};
use pd_verbs::loopback::Loopback;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

pub(crate) const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
pub(crate) const PAGES: u32 = 64;
/// A request's items of the two states, on prefill and on decode.
const SRC_ITEMS: [&[u32]; 2] = [&[3], &[0, 1, 5]];
const DST_ITEMS: [&[u32]; 2] = [&[1], &[4, 2, 3]];
/// Longer than anything here takes; only a hang reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn mk_layout() -> KvLayout {
    let cut = |first_layer, layers| KvCut {
        first_layer,
        layers,
    };
    let tensor = |name: &str, dim, layer_bytes| StateTensor {
        name: name.to_owned(),
        total_dim: dim,
        dim_start: 0,
        dim,
        first_layer: 0,
        layers: 2,
        layer_bytes,
    };
    KvLayout {
        order: PAGE_ORDER.to_owned(),
        page_size: 16,
        pages: PAGES,
        groups: vec![KvGroup {
            name: "full".to_owned(),
            dtype: KvDtype::Float32,
            head_dim: 8,
            tensors: 2,
            total_heads: 2,
            head_start: 0,
            heads: 2,
            cuts: vec![cut(0, 2), cut(2, 1)],
        }],
        states: vec![
            StateLayout {
                name: "recurrent".to_owned(),
                state_type: StateType::Mamba,
                slots: 4,
                tensors: vec![tensor("conv", 4, 4), tensor("ssm", 2, 16)],
            },
            StateLayout {
                name: "window".to_owned(),
                state_type: StateType::Swa,
                slots: 6,
                tensors: vec![tensor("kv", 2, 12)],
            },
        ],
        metadata: MetadataLayout {
            hidden_size: 0,
            hidden_dtype: KvDtype::Float32,
        },
        metadata_rows: 8,
    }
}

/// One manager with its memory.
pub(crate) struct Worker {
    pub(crate) manager: KvManager,
    pub(crate) kv: KvArgs,
    /// Where it writes over rdma, its NICs by the names in its configuration, `a` if there are none.
    pub(crate) nics: Option<Loopback>,
    pub(crate) transport_report: TransportReport,
    pub(crate) figures: Figures,
    /// The next of the manager's tasks that wakes the worker panics.
    pub(crate) panics: Arc<AtomicBool>,
    changes: Mutex<mpsc::Receiver<()>>,
}

pub(crate) struct Fixture {
    pub(crate) prefill: Worker,
    pub(crate) decode: Worker,
    pub(crate) bootstrap: Bootstrap,
}

pub(crate) fn mk_transfer(transport: TransportChoice) -> TransferConfig {
    TransferConfig {
        transport,
        resend_interval: Duration::from_millis(50),
        ..TransferConfig::new(HOST)
    }
}

pub(crate) fn mk_kv(layout: &KvLayout) -> KvArgs {
    mk_kv_in(layout, |len| Region::allocate("test", len).unwrap())
}

/// Pages and states where `allocate` takes them from.
pub(crate) fn mk_kv_in(layout: &KvLayout, allocate: impl Fn(usize) -> Region) -> KvArgs {
    let lens = layout.region_lens();
    let cuts = layout.regions().count();
    let region = |len: &u64| allocate(usize::try_from(*len).unwrap());
    KvArgs {
        layout: layout.clone(),
        kv: lens[..cuts].iter().map(region).collect(),
        states: lens[cuts..lens.len() - 1].iter().map(region).collect(),
        metadata: MetadataBuffers::allocate(layout.metadata, layout.metadata_rows).unwrap(),
    }
}

/// Gives a worker whose configuration allows rdma NICs that are its own.
fn plug_in(transfer: &mut TransferConfig) -> Option<Loopback> {
    let devices = &mut transfer.rdma.devices;
    if transfer.transport == TransportChoice::Only(Transport::Rdma) && devices.is_empty() {
        devices.push("a".to_owned());
    }
    if devices.is_empty() {
        return None;
    }
    let names: Vec<&str> = devices.iter().map(String::as_str).collect();
    let nics = Loopback::new(&names);
    let names = names.into_iter().map(|name| nics.name(name));
    *devices = names.collect();
    transfer.rdma.library = Loopback::open;
    Some(nics)
}

impl Worker {
    pub(crate) fn start(
        role: Role,
        boot_id: &str,
        bootstrap: Option<BootstrapAddr>,
        layout: &KvLayout,
        transfer: TransferConfig,
    ) -> Self {
        Self::try_start(role, boot_id, bootstrap, layout, transfer).unwrap()
    }

    pub(crate) fn try_start(
        role: Role,
        boot_id: &str,
        bootstrap: Option<BootstrapAddr>,
        layout: &KvLayout,
        transfer: TransferConfig,
    ) -> Result<Self, StartError> {
        Self::start_with(role, boot_id, bootstrap, mk_kv(layout), transfer)
    }

    fn start_with(
        role: Role,
        boot_id: &str,
        bootstrap: Option<BootstrapAddr>,
        kv: KvArgs,
        mut transfer: TransferConfig,
    ) -> Result<Self, StartError> {
        let (changed, changes) = mpsc::channel();
        let nics = plug_in(&mut transfer);
        let transport_report = transfer.transport_report.clone();
        transfer.metrics = TransferMetrics::default();
        let figures = Figures::of(&transfer.metrics);
        let panics = Arc::new(AtomicBool::new(false));
        let planted = Arc::clone(&panics);
        let config = KvManagerConfig {
            role,
            rank: RankId::default(),
            parallel: ParallelLayout::SINGLE,
            kv: kv.clone(),
            kv_compat: "compat".to_owned(),
            boot_id: boot_id.to_owned(),
            bootstrap_addr: bootstrap,
            http_port: None,
            transfer,
            waker: Arc::new(move || {
                let is_task = std::thread::current().name() == Some("pd-kv-transfer");
                assert!(
                    !(is_task && planted.swap(false, Ordering::AcqRel)),
                    "planted"
                );
                let _ = changed.send(());
            }),
        };
        Ok(Self {
            manager: KvManager::start(config)?,
            kv,
            nics,
            transport_report,
            figures,
            panics,
            changes: Mutex::new(changes),
        })
    }

    /// Waits, woken by the manager only, until `reached` holds.
    pub(crate) fn wait(&self, what: &str, reached: impl Fn() -> bool) {
        let changes = self.changes.lock();
        while !reached() {
            assert!(
                changes.recv_timeout(PATIENCE).is_ok(),
                "no wake until {what}"
            );
        }
    }

    pub(crate) fn regions(&self) -> impl Iterator<Item = &Region> {
        self.kv.kv.iter().chain(&self.kv.states)
    }

    /// Every byte of pages and states encodes its region, its position and `seed`.
    pub(crate) fn fill(&self, seed: u64) {
        for (i, region) in self.regions().enumerate() {
            let bytes: Vec<u8> = (0..region.len() as u64)
                .map(|at| known_byte(seed, i as u64, at))
                .collect();
            region.write(0, &bytes).unwrap();
        }
    }

    pub(crate) fn page(&self, cut: usize, page: u32) -> Vec<u8> {
        let region = &self.kv.kv[cut];
        let len = region.len() / PAGES as usize;
        let mut bytes = vec![0; len];
        region
            .read(u64::from(page) * len as u64, &mut bytes)
            .unwrap();
        bytes
    }

    fn item(&self, state: usize, item: u32) -> Vec<u8> {
        let region = &self.kv.states[state];
        let len = region.len() / self.kv.layout.states[state].slots as usize;
        let mut bytes = vec![0; len];
        let at = u64::from(item) * len as u64;
        region.read(at, &mut bytes).unwrap();
        bytes
    }

    pub(crate) fn snapshot(&self) -> Vec<Vec<u8>> {
        let read = |region: &Region| {
            let mut bytes = vec![0; region.len()];
            region.read(0, &mut bytes).unwrap();
            bytes
        };
        self.regions().map(read).collect()
    }
}

pub(crate) fn known_byte(seed: u64, region: u64, at: u64) -> u8 {
    let mixed = (seed ^ (region << 56) ^ at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8
}

impl Fixture {
    pub(crate) fn new(transport: TransportChoice) -> Self {
        Self::with(mk_transfer(transport), mk_transfer(transport))
    }

    pub(crate) fn with(prefill: TransferConfig, decode: TransferConfig) -> Self {
        let kv = || mk_kv(&mk_layout());
        Self::between((kv(), prefill), (kv(), decode))
    }

    pub(crate) fn between(
        prefill: (KvArgs, TransferConfig),
        decode: (KvArgs, TransferConfig),
    ) -> Self {
        let boot_id = format!("prefill-{}", next_boot());
        let bootstrap = mk_bootstrap_among(&prefill.1.peers, 0, &boot_id);
        let addr = Some(bootstrap.addr.clone());
        let (kv, transfer) = prefill;
        let prefill = Worker::start_with(Role::Prefill, &boot_id, addr, kv, transfer).unwrap();
        let boot_id = format!("decode-{}", next_boot());
        let (kv, transfer) = decode;
        let decode = Worker::start_with(Role::Decode, &boot_id, None, kv, transfer).unwrap();
        prefill.fill(1);
        Self {
            prefill,
            decode,
            bootstrap,
        }
    }

    pub(crate) fn sender(&self, room: u64) -> KvSender {
        let room = mk_room(room);
        self.prefill
            .manager
            .sender(SenderRequest { room, fake: false })
            .unwrap()
    }

    pub(crate) fn receiver(&self, room: u64) -> KvReceiver {
        self.decode.receiver(&self.bootstrap.addr, room)
    }

    /// Opens both ends of a room and waits until both are ready.
    pub(crate) fn open(&self, room: u64, dst_pages: &[u32], row: u32) -> (KvSender, KvReceiver) {
        let (sender, receiver) = (self.sender(room), self.receiver(room));
        receiver.init(dst_pages, row, &dst_items());
        self.decode.wait("prefill is known", || {
            receiver.poll() != KvPoll::Bootstrapping
        });
        assert_ne!(
            receiver.poll(),
            KvPoll::Failed,
            "{:?}",
            receiver.failure_reason()
        );
        self.prefill.wait("the TransferInfo is in", || {
            sender.poll() != KvPoll::Bootstrapping
        });
        (sender, receiver)
    }

    /// Sends a whole request, chunk by chunk.
    pub(crate) fn send(&self, sender: &KvSender, src_pages: &[u32], chunk: usize, row: u32) {
        let first_token = MetadataRow::new(sender.room(), 42);
        self.prefill
            .kv
            .metadata
            .write_row(row, &first_token)
            .unwrap();
        sender.init(src_pages.len(), row);
        let chunks: Vec<&[u32]> = src_pages.chunks(chunk.max(1)).collect();
        for (i, pages) in chunks.iter().enumerate() {
            let last = (i + 1 == chunks.len()).then(|| LastChunk {
                state_indices: src_items(),
            });
            sender.send(pages, last);
        }
    }

    pub(crate) fn wait_end(&self, sender: &KvSender, receiver: &KvReceiver) {
        self.decode
            .wait("decode's room has ended", || receiver.released());
        self.prefill
            .wait("prefill's room has ended", || sender.released());
    }

    /// Pages arrived as they were, and the row is the room's.
    pub(crate) fn assert_arrived(&self, room: u64, src: &[u32], dst: &[u32], row: u32) {
        for (&s, &d) in src.iter().zip(dst) {
            for cut in 0..2 {
                assert!(
                    self.prefill.page(cut, s) == self.decode.page(cut, d),
                    "page {s} to {d} of cut {cut}"
                );
            }
        }
        for (state, (from, to)) in SRC_ITEMS.iter().zip(DST_ITEMS).enumerate() {
            for (&s, &d) in from.iter().zip(to) {
                assert!(
                    self.prefill.item(state, s) == self.decode.item(state, d),
                    "item {s} to {d} of state {state}"
                );
            }
        }
        let row = self
            .decode
            .kv
            .metadata
            .read_row(row, mk_room(room))
            .unwrap();
        assert_eq!(row.output_ids, [42]);
    }
}

impl Worker {
    pub(crate) fn receiver(&self, addr: &BootstrapAddr, room: u64) -> KvReceiver {
        let request = ReceiverRequest {
            bootstrap_addr: addr.clone(),
            room: mk_room(room),
            prefill_dp_rank: None,
        };
        self.manager.receiver(request).unwrap()
    }
}

fn lists(items: [&[u32]; 2]) -> Vec<Vec<u32>> {
    items.iter().map(|items| items.to_vec()).collect()
}

/// What prefill sends of the states.
pub(crate) fn src_items() -> Vec<Vec<u32>> {
    lists(SRC_ITEMS)
}

/// What decode offers of the states.
pub(crate) fn dst_items() -> Vec<Vec<u32>> {
    lists(DST_ITEMS)
}

pub(crate) fn mk_room(room: u64) -> BootstrapRoom {
    BootstrapRoom::new(room).unwrap()
}

/// Boot ids name abstract sockets, so they are unique over all processes of a test run.
pub(crate) fn next_boot() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!(
        "{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}
