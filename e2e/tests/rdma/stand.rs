//! Hosts with the example program of `pd-verbs`, and one conversation between two of them.

use anyhow::{Result, ensure};
use pd_e2e::binaries::binary;
use pd_e2e::rdma::bench::{Bench, address};
use pd_e2e::rdma::machine::{Exit, Running};
use std::time::Duration;

/// No step takes longer on an emulated, busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An emulated host may stand still for 3.7 s, seven times 537 ms, before its peer gives it up: the default's half a
/// second is no standstill of a real NIC, but one of a busy machine.
const ACK_TIMEOUT: u8 = 17;

/// The writing host.
pub(crate) const A: usize = 0;
/// The receiving host.
pub(crate) const B: usize = 1;

pub(crate) async fn boot(hosts: usize) -> Result<Bench> {
    Bench::boot(hosts, 1, &[binary("examples/rdma-ping")], &[]).await
}

/// Flags of both ends for the way between them.
pub(crate) const IPV4: &str = "";
pub(crate) const IPV6: &str = "--ipv6";

/// Starts a receiver on one host and a writer on the other.
pub(crate) async fn start(
    bench: &mut Bench,
    what: &str,
    family: &str,
) -> Result<(Running, Running)> {
    let mut receiver = bench.hosts[B]
        .start(&format!("rdma-ping receive --listen 0.0.0.0:7000 {family}"))
        .await?;
    receiver.line("listening", PATIENCE).await?;
    let peer = address(B, 0);
    let write = format!(
        "rdma-ping write --peer {peer}:7000 --what {what} --ack-timeout {ACK_TIMEOUT} {family}"
    );
    let writer = bench.hosts[A].start(&write).await?;
    Ok((writer, receiver))
}

/// Runs both to their end, which must be a good one; what they printed.
pub(crate) async fn converse(bench: &mut Bench, what: &str, family: &str) -> Result<(Exit, Exit)> {
    let (writer, receiver) = start(bench, what, family).await?;
    let ends = (writer.exit(PATIENCE).await?, receiver.exit(PATIENCE).await?);
    ensure!(
        ends.0.code == 0 && ends.1.code == 0,
        "a side failed: {ends:?}"
    );
    Ok(ends)
}

/// Fails unless one of the lines contains `words`.
pub(crate) fn says(exit: &Exit, words: &str) -> Result<()> {
    let found = exit.lines.iter().any(|line| line.contains(words));
    ensure!(found, "no process said {words:?}: {:?}", exit.lines);
    Ok(())
}
