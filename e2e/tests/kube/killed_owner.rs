//! The owner of a cluster can be killed while it starts. Ctrl-C and crashes end it too; SIGKILL leaves
//! it no time for anything.

use crate::left_behind::snapshot;
use anyhow::{Context, Result, ensure};
use pd_e2e::binaries::binary;
use pd_e2e::kube::ledger::{Entry, Ledger};
use pd_e2e::kube::tools;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::time::sleep;

const LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The ledger's entry of what `owner` starts, once the file `reached` is in its folder.
async fn wait_started(owner: &mut Child, ledger: &Ledger, reached: &str) -> Result<Entry> {
    let pid = owner.id();
    let deadline = Instant::now() + LIMIT;
    loop {
        let mut entries = ledger.entries().into_iter();
        let entry = entries.find(|entry| entry.owner.is_some_and(|owner| owner.pid == pid));
        if let Some(entry) = entry.filter(|entry| entry.dir.join(reached).exists()) {
            return Ok(entry);
        }
        ensure!(
            owner.try_wait()?.is_none(),
            "pd-kube up has ended by itself"
        );
        ensure!(Instant::now() < deadline, "no {reached} after {LIMIT:?}");
        sleep(POLL_INTERVAL).await;
    }
}

async fn kill_owner(args: &[&str], reached: &str) -> Result<()> {
    let before = snapshot();
    let ledger = Ledger::new(&tools::cache());
    let mut up = Command::new(binary("pd-kube"));
    up.arg("up").args(args).stdout(Stdio::null());
    let mut owner = up.spawn().context("start pd-kube")?;
    let entry = wait_started(&mut owner, &ledger, reached).await?;
    owner.kill()?;
    owner.wait()?;

    let killed = Instant::now();
    // The guard's own end is the last of it.
    while snapshot() != before && killed.elapsed() < LIMIT {
        sleep(POLL_INTERVAL).await;
    }
    assert_eq!(snapshot(), before);
    assert!(!entry.dir.exists());
    let took = killed.elapsed().as_secs_f64();
    eprintln!("{took:5.1} s  everything is gone");
    Ok(())
}

#[tokio::test]
async fn a_control_plane_whose_owner_is_killed_leaves_nothing() -> Result<()> {
    kill_owner(&["--control-plane-only"], "etcd.sock").await
}

#[tokio::test]
async fn nodes_whose_owner_is_killed_leave_nothing() -> Result<()> {
    kill_owner(&["--nodes", "2"], "node-2/kubelet.json").await
}
