//! The one way a cluster ends, by any caller: its processes by their mark, then its cgroups, then its
//! folder, then its ledger entry. Namespaces, mounts and links end with the processes that hold them.

use crate::kube::cgroups;
use crate::kube::ledger::{Entry, Ledger};
use crate::kube::mark;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Killed processes are gone in milliseconds; a node's take a second.
const GONE_LIMIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Ends the cluster of `entry` and removes everything that it left. Does nothing the second time.
///
/// # Errors
/// When something stays; the entry then stays too, so that it can be tried again.
pub async fn teardown(ledger: &Ledger, entry: &Entry) -> Result<()> {
    let deadline = Instant::now() + GONE_LIMIT;
    let mut ending = mark::kill(&entry.id);
    while !ending.is_empty() {
        ensure!(
            Instant::now() < deadline,
            "processes of cluster {} do not end: {:?}",
            entry.id,
            mark::processes(&entry.id)
        );
        sleep(POLL_INTERVAL).await;
        ending.extend(mark::kill(&entry.id));
        ending.retain(|process| !process.has_ended());
    }
    while let Err(e) = cgroups::remove(&entry.id) {
        ensure!(
            Instant::now() < deadline,
            "cgroups of cluster {}: {e}",
            entry.id
        );
        sleep(POLL_INTERVAL).await;
    }
    remove_dir(&entry.dir)?;
    ledger.remove(&entry.id)
}

/// Ends every cluster whose owner is gone.
///
/// # Errors
/// When something stays of one.
pub async fn sweep(ledger: &Ledger) -> Result<()> {
    for entry in ledger.entries().iter().filter(|entry| entry.is_orphan()) {
        teardown(ledger, entry).await?;
    }
    Ok(())
}

/// Removes the folder; not while anything is mounted below, since that could be someone else's files.
fn remove_dir(dir: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("read the mounts")?;
    let below: Vec<&Path> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(Path::new)
        .filter(|point| point.starts_with(dir))
        .collect();
    if !below.is_empty() {
        bail!(
            "not removing {}: mounted below are {below:?}; unmount them",
            dir.display()
        );
    }
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("remove {}", dir.display()))
        }
        _ => Ok(()),
    }
}
