//! `pd-agent kv-probe`: benchmarks the KV transfer path between two nodes, before a worker serves
//! there.
//!
//! 1. One node plays prefill: a pool of pages with known bytes, a real manager, a bootstrap server.
//! 2. The other plays decode, with one manager or several. For each round it opens a room, offers
//!    pages and asks prefill to send to that room, by a route on the bootstrap server's port.
//! 3. Prefill reports when it sent and when decode confirmed, by its own clock; decode compares
//!    every byte and prints a table.
//!
//! Everything else works as in serving: bootstrap, registration, choice of a transport, fences,
//! heartbeats.

mod args;
mod channel;
mod clock;
mod decode;
mod node;
mod pool;
mod prefill;
mod report;
mod session;
mod shape;
mod wire;

pub(crate) use args::KvProbeArgs;

use crate::lost_threads::LostThreads;
use crate::peers;
use crate::wiring::log_to_stderr;
use anyhow::{Context, Result, ensure};
use pd_identity::Peers;
use pd_kv_transfer::TransportChoice;

/// Serves until a signal ends it, or measures and prints.
///
/// # Errors
/// The peer is unreachable or incompatible, or a received byte is wrong.
pub(crate) fn run(args: &KvProbeArgs) -> Result<()> {
    log_to_stderr(&args.log_level)?;
    ensure!(
        args.transfer.transfer_backend.choice() != TransportChoice::Fake,
        "--disaggregation-transfer-backend fake transfers nothing; use auto, shm, rdma or tcp"
    );
    let mut lost = LostThreads::watch(&["pd-kv-transfer"]);
    // The managers start their own threads.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the probe's thread")?;
    let (peers, follow_keys) = peers::open(args.transfer.peer_key_file.as_deref(), drop)?;
    runtime.block_on(async {
        tokio::select! {
            reason = lost.next() => Err(anyhow::anyhow!(reason)),
            () = follow_keys => Err(anyhow::anyhow!("the poll of the key file ended")),
            ended = play(args, &peers) => ended,
        }
    })
}

async fn play(args: &KvProbeArgs, peers: &Peers) -> Result<()> {
    match args.peer()? {
        None => prefill::serve(args, peers).await,
        Some(peer) => decode::measure(args, &peer, peers).await,
    }
}
