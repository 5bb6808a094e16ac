//! Throughput of a transfer: 1 GiB in 64 KiB pages, random page order on both sides, from the
//! sender's `send` to the receiver's `Success`. Takes the bare loops' GB/s (tcp, memcpy), as
//! `bench/transfer/run.sh` measures them, and prints the ratios.
#![expect(clippy::print_stdout, reason = "a bench reports on stdout")]

use anyhow::{Context, ensure};
use pd_kv_transfer::{
    BootstrapAddr, BootstrapServer, KvArgs, KvManager, KvManagerConfig, LastChunk, MetadataBuffers,
    ReceiverRequest, Region, SenderRequest, TransferConfig, Transport,
};
use pd_protocol::layout::{KvCut, KvDtype, KvGroup, KvLayout, PAGE_ORDER, ParallelLayout, RankId};
use pd_protocol::metadata::{MetadataLayout, MetadataRow};
use pd_protocol::workers::Role;
use pd_protocol::{BootstrapRoom, KvPoll};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PAGES: u32 = 16_384;
const PAGE_BYTES: usize = 64 << 10;
const ROUNDS: u64 = 6;
const PATIENCE: Duration = Duration::from_secs(60);

struct Worker {
    manager: KvManager,
    kv: KvArgs,
    changes: Receiver<()>,
}

fn layout() -> KvLayout {
    KvLayout {
        order: PAGE_ORDER.to_owned(),
        page_size: 16,
        pages: PAGES,
        groups: vec![KvGroup {
            name: "full".to_owned(),
            dtype: KvDtype::Float32,
            head_dim: 64,
            tensors: 2,
            total_heads: 8,
            head_start: 0,
            heads: 8,
            cuts: vec![KvCut {
                first_layer: 0,
                layers: 1,
            }],
        }],
        states: Vec::new(),
        metadata: MetadataLayout {
            hidden_size: 0,
            hidden_dtype: KvDtype::Float32,
        },
        metadata_rows: 1,
    }
}

fn start(
    role: Role,
    transport: Transport,
    bootstrap: Option<BootstrapAddr>,
) -> anyhow::Result<Worker> {
    let layout = layout();
    let region = Region::allocate("bench", PAGES as usize * PAGE_BYTES)?;
    let seed = u8::from(role == Role::Prefill);
    for page in 0..PAGES {
        let bytes = vec![seed.wrapping_mul(u8::try_from(page % 251)?); PAGE_BYTES];
        region.write(u64::from(page) * PAGE_BYTES as u64, &bytes)?;
    }
    let kv = KvArgs {
        kv: vec![region],
        states: Vec::new(),
        metadata: MetadataBuffers::allocate(layout.metadata, 1)?,
        layout,
    };
    let (changed, changes) = channel();
    let manager = KvManager::start(KvManagerConfig {
        role,
        rank: RankId::default(),
        parallel: ParallelLayout::SINGLE,
        kv: kv.clone(),
        kv_compat: "bench".to_owned(),
        boot_id: format!("bench-{role:?}-{transport:?}-{}", std::process::id()),
        bootstrap_addr: bootstrap,
        http_port: None,
        transfer: TransferConfig {
            transport,
            ..TransferConfig::new(HOST)
        },
        waker: Arc::new(move || {
            let _ = changed.send(());
        }),
    })?;
    Ok(Worker {
        manager,
        kv,
        changes,
    })
}

fn wait(worker: &Worker, reached: impl Fn() -> bool) -> anyhow::Result<()> {
    while !reached() {
        let woken = worker.changes.recv_timeout(PATIENCE);
        woken.context("the transfer hangs")?;
    }
    Ok(())
}

/// Median GB/s of five rounds after one to warm up.
fn measure(transport: Transport) -> anyhow::Result<f64> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let entered = runtime.enter();
    let listener = TcpListener::bind((HOST, 0))?;
    let boot_id = format!(
        "bench-{:?}-{transport:?}-{}",
        Role::Prefill,
        std::process::id()
    );
    let server = BootstrapServer::start(listener, &boot_id, "bench")?;
    drop(entered);
    let addr = BootstrapAddr {
        host: HOST.to_string(),
        port: server.local_addr().port(),
    };
    let prefill = start(Role::Prefill, transport, Some(addr.clone()))?;
    let decode = start(Role::Decode, transport, None)?;
    let mut draws = StdRng::seed_from_u64(7);
    let mut src: Vec<u32> = (0..PAGES).collect();
    let mut dst = src.clone();
    src.shuffle(&mut draws);
    dst.shuffle(&mut draws);

    let mut rates = Vec::new();
    for round in 1..=ROUNDS {
        let room = BootstrapRoom::new(round)?;
        let sender = prefill
            .manager
            .sender(SenderRequest { room, fake: false })?;
        let receiver = decode.manager.receiver(ReceiverRequest {
            bootstrap_addr: addr.clone(),
            room,
            prefill_dp_rank: None,
        })?;
        receiver.init(&dst, 0, &[]);
        wait(&prefill, || sender.poll() != KvPoll::Bootstrapping)?;
        sender.init(src.len(), 0);
        prefill
            .kv
            .metadata
            .write_row(0, &MetadataRow::new(room, 1))?;
        let started = Instant::now();
        sender.send(&src, Some(LastChunk::default()));
        wait(&decode, || receiver.poll().is_terminal())?;
        let seconds = started.elapsed().as_secs_f64();
        ensure!(
            receiver.poll() == KvPoll::Success,
            "{:?}",
            receiver.failure_reason()
        );
        wait(&prefill, || sender.released())?;
        rates.push(f64::from(PAGES) * PAGE_BYTES as f64 / seconds / 1e9);
    }
    verify(&prefill, &decode, &src, &dst)?;
    rates.remove(0);
    rates.sort_by(f64::total_cmp);
    Ok(rates[rates.len() / 2])
}

fn verify(prefill: &Worker, decode: &Worker, src: &[u32], dst: &[u32]) -> anyhow::Result<()> {
    let mut pages = [vec![0; PAGE_BYTES], vec![0; PAGE_BYTES]];
    for (&s, &d) in src.iter().zip(dst) {
        prefill.kv.kv[0].read(u64::from(s) * PAGE_BYTES as u64, &mut pages[0])?;
        decode.kv.kv[0].read(u64::from(d) * PAGE_BYTES as u64, &mut pages[1])?;
        ensure!(pages[0] == pages[1], "page {s} did not arrive as page {d}");
    }
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let ceilings: Vec<f64> = std::env::args()
        .skip(1)
        .map(|arg| arg.parse().context("the bare loops' GB/s: tcp, memcpy"))
        .collect::<Result<_, _>>()?;
    let transports = [("tcp", Transport::Tcp), ("shm", Transport::Shm)];
    for (i, (name, transport)) in transports.into_iter().enumerate() {
        let rate = measure(transport)?;
        match ceilings.get(i) {
            Some(ceiling) => println!(
                "{name}: {rate:.2} GB/s, {:.2} of the bare loop",
                rate / ceiling
            ),
            None => println!("{name}: {rate:.2} GB/s"),
        }
    }
    Ok(())
}
