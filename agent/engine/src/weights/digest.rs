//! SHA-256 of model files, part of `kv_compat`. A digest is computed once per file: it is kept in
//! a cache folder under the file's device, inode, size and modification time, and computed on a
//! thread of its own, beside the packing of the weights.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use sha2::{Digest, Sha256};

/// Bytes read at once: large enough that the calls cost nothing beside the hashing.
const READ_BYTES: usize = 1 << 20;

/// Lowercase hex of a SHA-256.
pub type HexDigest = String;

/// Where digests of files are kept between runs.
#[derive(Clone, Debug)]
pub struct DigestCache {
    folder: Option<PathBuf>,
}

/// Digests being computed.
#[derive(Debug)]
pub struct DigestTask {
    thread: JoinHandle<Result<Vec<HexDigest>, DigestError>>,
}

#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    #[error("cannot read {path} to compute its digest: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot start the thread {name}: {source}")]
    Thread {
        name: &'static str,
        source: io::Error,
    },
    #[error("the thread that computes digests panicked")]
    Panicked,
}

/// Where a user's digests are kept: under `$XDG_CACHE_HOME`, or under `.cache` at home. `None` when
/// the environment names neither.
pub fn user_folder() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("pdserve").join("digests"))
}

// === impl DigestCache ===

impl DigestCache {
    /// Keeps digests in `folder`, which is made when the first is written; computes them anew each
    /// time without one.
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }

    /// Computes, or finds, the digests of `files` on a thread of its own.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn spawn(&self, files: Vec<PathBuf>) -> Result<DigestTask, DigestError> {
        const NAME: &str = "pd-digest";
        let cache = self.clone();
        let digests = move || files.iter().map(|file| cache.digest(file)).collect();
        let thread = std::thread::Builder::new().name(NAME.to_owned());
        match thread.spawn(digests) {
            Ok(thread) => Ok(DigestTask { thread }),
            Err(source) => Err(DigestError::Thread { name: NAME, source }),
        }
    }

    /// The digest of one file, from the cache when it is there.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn digest(&self, path: &Path) -> Result<HexDigest, DigestError> {
        let wrong = |source| DigestError::Read {
            path: path.to_owned(),
            source,
        };
        let mut file = File::open(path).map_err(wrong)?;
        let before = file.metadata().map_err(wrong)?;
        let entry = self
            .folder
            .as_ref()
            .map(|folder| folder.join(entry_name(&before)));
        if let Some(digest) = entry.as_deref().and_then(read_entry) {
            return Ok(digest);
        }
        let digest = hash(&mut file).map_err(wrong)?;
        let after = file.metadata().map_err(wrong)?;
        // A file that changed while it was read has no digest worth keeping.
        if entry_name(&before) == entry_name(&after)
            && let Some(entry) = entry
            && let Err(error) = write_entry(&entry, &digest)
        {
            // Pods have no folder of their own that lasts.
            tracing::info!(path = %entry.display(), %error, "a model file's digest is not kept; the next start computes it again");
        }
        Ok(digest)
    }
}

fn entry_name(file: &Metadata) -> String {
    format!(
        "sha256-{}-{}-{}-{}.{:09}",
        file.dev(),
        file.ino(),
        file.size(),
        file.mtime(),
        file.mtime_nsec()
    )
}

fn read_entry(path: &Path) -> Option<HexDigest> {
    let text = fs::read_to_string(path).ok()?;
    let is_digest = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then_some(text)
}

/// Through a file of our own and a rename, so that no reader sees half a digest.
fn write_entry(path: &Path, digest: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let partial = path.with_extension(format!("{}.partial", std::process::id()));
    fs::write(&partial, digest)?;
    fs::rename(&partial, path)
}

fn hash(file: &mut File) -> io::Result<HexDigest> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(hex(&hasher.finalize()));
        }
        hasher.update(&buffer[..read]);
    }
}

/// The digest of bytes in memory.
pub fn digest_bytes(bytes: &[u8]) -> HexDigest {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> HexDigest {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// === impl DigestTask ===

impl DigestTask {
    /// Waits for the digests, in the order of the files.
    ///
    /// # Errors
    /// The first file that could not be read.
    pub fn wait(self) -> Result<Vec<HexDigest>, DigestError> {
        self.thread.join().map_err(|_| DigestError::Panicked)?
    }
}

#[cfg(test)]
mod tests;
