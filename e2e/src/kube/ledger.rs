//! What a cluster leaves on this machine, written down before it starts, so that it can be ended by
//! someone else: `pd-kube down`, the guard beside a test, or the next start after a crash.

use crate::kube::mark;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod tests;

/// One running cluster.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Entry {
    /// Names its processes' mark and its cgroups.
    pub id: String,
    /// Everything it writes lies below.
    pub dir: PathBuf,
    pub nodes: u8,
    /// The process that it lives and ends with; none for one that a person keeps.
    pub owner: Option<Owner>,
}

/// A process; the time of its start distinguishes it from a later one with the same number.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Owner {
    pub pid: u32,
    /// Clock ticks since boot.
    pub started: u64,
}

/// The entries, a file each.
#[derive(Clone, Debug)]
pub struct Ledger {
    folder: PathBuf,
}

// === impl Ledger ===

impl Ledger {
    pub fn new(cache: &Path) -> Self {
        Self {
            folder: cache.join("kube/clusters"),
        }
    }

    /// # Errors
    /// When the folder cannot be written.
    pub fn write(&self, entry: &Entry) -> Result<()> {
        fs::create_dir_all(&self.folder).context("make the ledger's folder")?;
        let partial = self.folder.join(format!(".{}", entry.id));
        fs::write(&partial, serde_json::to_vec_pretty(entry)?).context("write the ledger")?;
        fs::rename(&partial, self.file(&entry.id)).context("write the ledger")
    }

    /// # Errors
    /// When the entry is there and cannot be removed.
    pub fn remove(&self, id: &str) -> Result<()> {
        match fs::remove_file(self.file(id)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(e).with_context(|| format!("remove {}", self.file(id).display()))
            }
            _ => Ok(()),
        }
    }

    pub fn entry(&self, id: &str) -> Option<Entry> {
        serde_json::from_slice(&fs::read(self.file(id)).ok()?).ok()
    }

    /// Every entry, by id.
    pub fn entries(&self) -> Vec<Entry> {
        let Ok(files) = fs::read_dir(&self.folder) else {
            return Vec::new();
        };
        let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
        let mut ids: Vec<String> = names
            .filter_map(|name| Some(name.strip_suffix(".json")?.to_owned()))
            .collect();
        ids.sort();
        ids.iter().filter_map(|id| self.entry(id)).collect()
    }

    fn file(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.json"))
    }
}

// === impl Entry ===

impl Entry {
    /// Its owner ended without ending it, or it was kept and the machine has restarted since.
    pub fn is_orphan(&self) -> bool {
        match self.owner {
            Some(owner) => Owner::of(owner.pid) != Some(owner),
            None => mark::processes(&self.id).is_empty(),
        }
    }

    /// Speaks as an administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.kubeconfig")
    }
}

// === impl Owner ===

impl Owner {
    /// The process `pid`, if it runs.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Field 22, counted from behind the command's closing bracket, which is field 2.
        let started = stat
            .rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(19)?
            .parse()
            .ok()?;
        Some(Self { pid, started })
    }
}
