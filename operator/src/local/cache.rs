//! The one folder outside the checkout that is written to: a state file for each deployment that
//! runs, and a lock that says that it does.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Why the state of a deployment cannot be kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CacheError {
    #[error("cannot write {path}: {source}; choose another folder with --cache-dir")]
    Write {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "{name} already runs on this machine (see `pd-operator local status`); stop it first, or \
         give the deployment another name"
    )]
    Running { name: String },
}

/// The folder when none is given: `$XDG_CACHE_HOME/pdserve`, or `~/.cache/pdserve`.
pub(crate) fn default_folder(xdg: Option<PathBuf>, home: Option<PathBuf>) -> PathBuf {
    let cache = xdg
        .filter(|path| path.is_absolute())
        .or(home.map(|home| home.join(".cache")));
    cache
        .unwrap_or_else(|| PathBuf::from(".cache"))
        .join("pdserve")
}

/// The state file of a deployment that this process runs; no other process runs it while this lives.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    _lock: File,
}

// === impl StateFile ===

impl StateFile {
    /// Takes a deployment unless another process has it.
    pub(crate) fn take(cache: &Path, namespace: &str, name: &str) -> Result<Self, CacheError> {
        let folder = states(cache);
        let path = folder.join(format!("{namespace}.{name}.json"));
        let write = |path: &Path, source| CacheError::Write {
            path: path.to_owned(),
            source,
        };
        std::fs::create_dir_all(&folder).map_err(|source| write(&folder, source))?;
        let lock_path = path.with_extension("lock");
        let lock = File::create(&lock_path).map_err(|source| write(&lock_path, source))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            CacheError::Running {
                name: name.to_owned(),
            }
        })?;
        Ok(Self { path, _lock: lock })
    }

    /// Replaces the state in one step, so that a reader never sees half of it.
    pub(crate) fn write(&self, state: &[u8]) -> Result<(), CacheError> {
        let write = |path: &Path, source| CacheError::Write {
            path: path.to_owned(),
            source,
        };
        let fresh = self.path.with_extension("new");
        let mut file = File::create(&fresh).map_err(|source| write(&fresh, source))?;
        file.write_all(state)
            .map_err(|source| write(&fresh, source))?;
        std::fs::rename(&fresh, &self.path).map_err(|source| write(&self.path, source))
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.path);
        let _gone = std::fs::remove_file(self.path.with_extension("lock"));
    }
}

/// The states of all deployments that run now. A file whose lock is free was left by a process
/// that was killed, and is passed over.
pub(crate) fn running(cache: &Path) -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(states(cache))
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .collect();
    files.sort();
    files
        .iter()
        .filter(|path| is_locked(path))
        .filter_map(|path| std::fs::read(path).ok())
        .collect()
}

fn is_locked(path: &Path) -> bool {
    let Ok(lock) = File::open(path.with_extension("lock")) else {
        return false;
    };
    flock(&lock, FlockOperation::NonBlockingLockShared).is_err()
}

fn states(cache: &Path) -> PathBuf {
    cache.join("local")
}

#[cfg(test)]
mod tests;
