//! A process beside the cluster's owner that ends the cluster when the owner ends, by any means: it
//! waits for the end of a pipe that only the owner holds. `stop` uses it as well, so that there is one
//! way to end.

use crate::binaries::binary;
use crate::kube::ledger::Ledger;
use crate::kube::teardown::teardown;
use anyhow::{Context, Result, ensure};
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What the owner says when the cluster is to outlive it.
const KEEP: &str = "keep";

pub struct Guard {
    child: Child,
}

// === impl Guard ===

impl Guard {
    /// # Errors
    /// When `pd-kube` cannot be started.
    pub fn spawn(cache: &Path, id: &str) -> Result<Self> {
        let child = Command::new(binary("pd-kube"))
            .arg("guard")
            .arg("--cache")
            .arg(cache)
            .args(["--id", id])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Ctrl-C ends the owner; the guard has work to do then.
            .process_group(0)
            .spawn()
            .context("start pd-kube guard")?;
        Ok(Self { child })
    }

    /// Leaves the cluster running.
    ///
    /// # Errors
    /// When the guard is gone.
    pub fn keep(mut self) -> Result<()> {
        let pipe = self.child.stdin.as_mut().context("the guard has a pipe")?;
        pipe.write_all(KEEP.as_bytes())
            .context("release the guard")?;
        self.wait()
    }

    /// Ends the cluster and waits until nothing of it is left.
    ///
    /// # Errors
    /// When something stays; the guard has said what on standard error.
    pub fn end(mut self) -> Result<()> {
        self.wait()
    }

    fn wait(&mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait().context("wait for the guard")?;
        ensure!(status.success(), "the guard failed; see its message above");
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // After `keep` and `end` the guard has been waited for, and this finds it so.
        let _ = self.wait();
    }
}

/// The guard's own work: waits for the end of standard input, then ends cluster `id`.
///
/// # Errors
/// When something of the cluster stays.
pub async fn stand(cache: &Path, id: &str) -> Result<()> {
    let mut said = String::new();
    std::io::stdin()
        .read_to_string(&mut said)
        .context("read the owner's word")?;
    if said == KEEP {
        return Ok(());
    }
    let ledger = Ledger::new(cache);
    match ledger.entry(id) {
        Some(entry) => teardown(&ledger, &entry).await,
        None => Ok(()),
    }
}
