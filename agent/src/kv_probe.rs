//! `pd-agent kv-probe`: what KV does on the way between two nodes, before anything is served there.
//!
//! 1. One node plays prefill: a pool of pages whose bytes are known, a real manager, a bootstrap server.
//! 2. The other plays decode, with one manager or several. For each round it opens a room, offers
//!    pages and asks prefill, by a route beside the bootstrap server's, to send to that room.
//! 3. Prefill says when it sent and when decode had confirmed, by its own clock; decode compares every
//!    byte and prints a table.
//!
//! All else is what serving does: bootstrap, registration, choice of a transport, fences, heartbeats.

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
use crate::wiring::log_to_stderr;
use anyhow::{Context, Result, ensure};
use pd_kv_transfer::TransportChoice;

/// Serves until a signal, or measures and prints.
///
/// # Errors
/// The peer cannot be reached, does not fit, or a byte is not what was sent.
pub(crate) fn run(args: &KvProbeArgs) -> Result<()> {
    log_to_stderr(&args.log_level)?;
    ensure!(
        args.transfer.transfer_backend.choice() != TransportChoice::Fake,
        "--disaggregation-transfer-backend fake moves nothing; use auto, shm, rdma or tcp"
    );
    let mut lost = LostThreads::watch(&["pd-kv-transfer"]);
    // The managers bring threads of their own.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the probe's thread")?;
    runtime.block_on(async {
        tokio::select! {
            reason = lost.next() => Err(anyhow::anyhow!(reason)),
            ended = play(args) => ended,
        }
    })
}

async fn play(args: &KvProbeArgs) -> Result<()> {
    match args.peer()? {
        None => prefill::serve(args).await,
        Some(peer) => decode::measure(args, &peer).await,
    }
}
