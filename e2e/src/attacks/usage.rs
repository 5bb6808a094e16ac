//! What a process holds, as the kernel counts it; and a bound of its memory, by a cgroup.

use crate::process::Process;
use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::path::{Path, PathBuf};

const CGROUPS: &str = "/sys/fs/cgroup";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// What it has allocated and touched. The KV pool does not count: it is a file in memory, of a size that is fixed at
    /// the start, and resident from the first token in each of its pages.
    pub anonymous_bytes: u64,
    /// The most that was resident, the KV pool included.
    pub peak_bytes: u64,
    pub descriptors: usize,
    pub threads: usize,
}

/// A memory cgroup of one process; it goes with this.
pub struct MemoryLimit {
    path: PathBuf,
}

// === impl Usage ===

impl Usage {
    /// # Errors
    /// When the process is gone.
    pub fn of(process: &Process) -> Result<Self> {
        let id = process.id();
        let id = id.with_context(|| format!("{} has exited", process.name))?;
        let entries = |kind: &str| -> Result<usize> {
            let path = format!("/proc/{id}/{kind}");
            Ok(fs::read_dir(&path).with_context(|| path.clone())?.count())
        };
        let status = fs::read_to_string(format!("/proc/{id}/status"))?;
        Ok(Self {
            anonymous_bytes: field(&status, "RssAnon:")?,
            peak_bytes: field(&status, "VmHWM:")?,
            descriptors: entries("fd")?,
            threads: entries("task")?,
        })
    }
}

fn field(status: &str, name: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib = kib.with_context(|| format!("no {name} in {status}"))?;
    Ok(kib.trim().parse::<u64>()? * 1024)
}

// === impl MemoryLimit ===

impl MemoryLimit {
    /// Puts a process into a group of its own: of the v2 tree, or of v1's memory controller.
    ///
    /// # Errors
    /// When there is neither, or the kernel refuses, as it does without root.
    pub fn set(process: &Process, bytes: u64) -> Result<Self> {
        let root = Path::new(CGROUPS);
        let is_v2 = root.join("cgroup.controllers").is_file();
        let (root, file) = if is_v2 {
            (root.to_owned(), "memory.max")
        } else {
            (root.join("memory"), "memory.limit_in_bytes")
        };
        let id = process.id().context("it has exited")?;
        let path = root.join(format!("pdserve-attacks-{id}"));
        fs::create_dir(&path).with_context(|| format!("make {}", path.display()))?;
        let group = Self { path };
        let write = |file: &str, text: String| {
            let path = group.path.join(file);
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))
        };
        write(file, bytes.to_string())?;
        write("cgroup.procs", id.to_string())?;
        Ok(group)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // Busy while its process lives; the group is then empty after it.
        let _busy = fs::remove_dir(&self.path);
    }
}

/// An attacker opens more files than the shell allows at first.
///
/// # Errors
/// The kernel's.
pub fn raise_descriptors() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    Ok(setrlimit(Resource::Nofile, raised)?)
}
