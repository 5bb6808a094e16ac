//! The one folder outside the checkout that is written to: for each deployment that runs, a state file and a lock that
//! says that it does; and its keys, which stay.

use crate::random_text::random_text;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Extension of a file with the keys of a deployment's processes.
const PEER_KEYS: &str = "peer-keys";
/// Bytes of such a key before they are written in hexadecimal.
const PEER_KEY_BYTES: usize = 32;

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
        let path = file_of(cache, namespace, name, "json");
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

    pub(crate) fn write(&self, state: &[u8]) -> Result<(), CacheError> {
        replace(&self.path, state, 0o666)
    }

    /// Makes the file with the deployment's keys if there is none, for its user alone.
    pub(crate) fn ensure_peer_keys(&self) -> Result<(), CacheError> {
        let path = self.path.with_extension(PEER_KEYS);
        if path.exists() {
            return Ok(());
        }
        let key = random_text::<PEER_KEY_BYTES>();
        replace(&path, format!("{key}\n").as_bytes(), 0o600)
    }
}

impl Drop for StateFile {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.path);
        let _gone = std::fs::remove_file(self.path.with_extension("lock"));
    }
}

/// Replaces a file in one step, so that a reader never sees half of it.
fn replace(path: &Path, content: &[u8], mode: u32) -> Result<(), CacheError> {
    let write = |path: &Path, source| CacheError::Write {
        path: path.to_owned(),
        source,
    };
    let fresh = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(mode);
    let written = options
        .open(&fresh)
        .and_then(|mut file| file.write_all(content));
    written.map_err(|source| write(&fresh, source))?;
    std::fs::rename(&fresh, path).map_err(|source| write(path, source))
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

/// Where the keys of a deployment's processes lie.
pub(crate) fn peer_key_file(cache: &Path, namespace: &str, name: &str) -> PathBuf {
    file_of(cache, namespace, name, PEER_KEYS)
}

/// Names have no dot.
fn file_of(cache: &Path, namespace: &str, name: &str, extension: &str) -> PathBuf {
    states(cache).join(format!("{namespace}.{name}.{extension}"))
}

fn states(cache: &Path) -> PathBuf {
    cache.join("local")
}

#[cfg(test)]
mod tests;
