//! Links that break, and hosts and devices that go away, each under writes.

use crate::stand::{self, A, B, PATIENCE, says, start};
use anyhow::{Result, ensure};
use pd_e2e::rdma::bench::{Bench, address};
use pd_e2e::rdma::ethernet::Trouble;
use pd_e2e::rdma::machine::{Exit, Running};

/// What a peer that does not answer is called.
const SILENT: &str = "IBV_WC_RETRY_EXC_ERR (12) for a write on queue pair";

/// Two ends, with writes on their way.
async fn writing(bench: &mut Bench) -> Result<(Running, Running)> {
    let (mut writer, receiver) = start(bench, "forever", stand::IPV4).await?;
    writer.line("writing", PATIENCE).await?;
    Ok((writer, receiver))
}

/// The writer ends well when its write failed within its bound.
async fn failed(writer: Running) -> Result<Exit> {
    let exit = writer.exit(PATIENCE).await?;
    ensure!(exit.code == 0, "the writer ended with {}", exit.code);
    says(&exit, "failed after")?;
    Ok(exit)
}

/// A cable pulled behind the switch: no carrier is lost, only answers.
async fn a_cut_link_is_a_silent_peer(bench: &mut Bench) -> Result<()> {
    let (writer, receiver) = writing(bench).await?;
    bench.set_trouble(B, 0, Trouble::Cut)?;
    says(&failed(writer).await?, SILENT)?;
    bench.set_trouble(B, 0, Trouble::None)?;
    receiver.exit(PATIENCE).await?;
    Ok(())
}

/// The host's own cable: its device reports the port, too.
async fn a_pulled_cable_is_an_event(bench: &mut Bench) -> Result<()> {
    let (writer, receiver) = writing(bench).await?;
    bench.hosts[A].set_link(0, false).await?;
    let exit = failed(writer).await?;
    says(&exit, "event: PortDown { port: 1 }")?;
    says(&exit, SILENT)?;
    bench.hosts[A].set_link(0, true).await?;
    receiver.exit(PATIENCE).await?;
    Ok(())
}

/// The NIC is taken from its bus, and put back. Deleting the Soft-RoCE device alone shows nothing: the
/// kernel waits for those who have it open, and does not notify them.
async fn a_removed_device_is_gone(bench: &mut Bench) -> Result<()> {
    let (writer, receiver) = writing(bench).await?;
    let mut holder = bench.hosts[A].start("rdma-ping hold").await?;
    holder.line("holding rxe0", PATIENCE).await?;
    let removal = "echo 1 >/sys/class/net/eth0/device/../remove";
    let removal = bench.hosts[A].start(removal).await?;
    // A write on its way gets no answer; the next one is refused.
    let named = failed(writer).await?;
    let refused = "IBV_WC_LOC_QP_OP_ERR (2) for a write on queue pair";
    says(&named, SILENT).or_else(|_| says(&named, refused))?;
    let exit = holder.exit(PATIENCE).await?;
    says(&exit, "event: ")?;
    says(
        &exit,
        "ibv_query_port failed on rxe0 port 1: No such device",
    )?;
    says(&exit, "the device is gone")?;
    removal.exit(PATIENCE).await?;
    // It is not notified that its writer's host has lost its NIC; on a busy machine it may have run out of patience.
    let end = "killall rdma-ping || ! pidof rdma-ping";
    bench.hosts[B].run(end, PATIENCE).await?;
    receiver.exit(PATIENCE).await?;

    let asked = bench.hosts[A].start("rdma-ping devices").await?;
    says(
        &asked.exit(PATIENCE).await?,
        "this machine has no RDMA device",
    )?;
    let plug = format!(
        "echo 1 >/sys/bus/pci/rescan && ip address add {}/24 dev eth0 && ip link set eth0 mtu 4200 up && \
         rdma link add rxe0 type rxe netdev eth0",
        address(A, 0)
    );
    bench.hosts[A].run(&plug, PATIENCE).await?;
    Ok(())
}

/// Also shows that the device that was put back works.
async fn a_killed_host_is_a_silent_peer(bench: &mut Bench) -> Result<()> {
    let (writer, receiver) = writing(bench).await?;
    bench.hosts.remove(B).power_off().await?;
    says(&failed(writer).await?, SILENT)?;
    ensure!(
        receiver.exit(PATIENCE).await.is_err(),
        "a host without power answers"
    );
    Ok(())
}

#[tokio::test]
async fn what_breaks_is_named_within_its_bound() -> Result<()> {
    let mut bench = stand::boot(2).await?;
    bench.add_rdma(1).await?;
    a_cut_link_is_a_silent_peer(&mut bench).await?;
    a_pulled_cable_is_an_event(&mut bench).await?;
    a_removed_device_is_gone(&mut bench).await?;
    a_killed_host_is_a_silent_peer(&mut bench).await
}
