//! Digests of model files, part of `kv_compat`: SHA-256 of a file of one chunk, of a larger one SHA-256 over its
//! chunks' SHA-256s, so that several threads share it. A digest is computed once per file: it is kept in a cache
//! folder under the file's device, inode, size and modification time, and computed beside the packing of the
//! weights.

use sha2::{Digest, Sha256};
use std::fs::{self, File, Metadata};
use std::io;
use std::num::NonZero;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Bytes read at once: large enough that the calls cost nothing beside the hashing.
const READ_BYTES: usize = 1 << 20;
/// What one thread hashes at a time; part of what a digest means.
const CHUNK_BYTES: u64 = 64 << 20;
/// Threads that hash one file; more would wait for the disk, and the packing of weights needs some.
const THREADS_MAX: usize = 8;

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
    /// Keeps digests in `folder`, which is created with the first one; computes them each time
    /// without a folder.
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
        let file = File::open(path).map_err(wrong)?;
        let before = file.metadata().map_err(wrong)?;
        let entry = self
            .folder
            .as_ref()
            .map(|folder| folder.join(entry_name(&before)));
        if let Some(digest) = entry.as_deref().and_then(read_entry) {
            return Ok(digest);
        }
        let digest = hash(&file, before.size(), CHUNK_BYTES).map_err(wrong)?;
        let after = file.metadata().map_err(wrong)?;
        // A file that changed while it was read has no digest worth keeping.
        if entry_name(&before) == entry_name(&after)
            && let Some(entry) = entry
            && let Err(error) = write_entry(&entry, &digest)
        {
            // Pods have no folder of their own that lasts.
            tracing::info!(path = %entry.display(), %error, "cannot keep a model file's digest; the next start computes it again");
        }
        Ok(digest)
    }
}

fn entry_name(file: &Metadata) -> String {
    format!(
        "sha256-chunked-{}-{}-{}-{}.{:09}",
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

/// `len` bytes of a file, by as many threads as there are chunks and processors.
fn hash(file: &File, len: u64, chunk_bytes: u64) -> io::Result<HexDigest> {
    let chunks = len.div_ceil(chunk_bytes).max(1);
    let chunk = |nr: u64| {
        let from = nr * chunk_bytes;
        hash_range(file, from..(from + chunk_bytes).min(len))
    };
    if chunks == 1 {
        return Ok(hex(&chunk(0)?));
    }
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicU64::new(0);
    let work = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let mine = numbers.take_while(|nr| *nr < chunks);
        let hashed = mine.map(|nr| Ok((nr, chunk(nr)?)));
        hashed.collect::<io::Result<Vec<_>>>()
    };
    let mut hashed = std::thread::scope(|scope| {
        let others: Vec<_> = (1..processors.min(THREADS_MAX))
            .map(|_| scope.spawn(work))
            .collect();
        let mut hashed = work()?;
        for other in others {
            hashed.extend(
                other
                    .join()
                    .map_err(|_| io::Error::other("a hashing thread panicked"))??,
            );
        }
        Ok::<_, io::Error>(hashed)
    })?;
    hashed.sort_unstable_by_key(|(nr, _)| *nr);
    let mut whole = Sha256::new();
    for (_, digest) in hashed {
        whole.update(digest);
    }
    Ok(hex(&whole.finalize()))
}

/// An error where the file has become shorter.
fn hash_range(file: &File, range: Range<u64>) -> io::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; READ_BYTES];
    let mut at = range.start;
    while at < range.end {
        let wanted =
            usize::try_from(range.end - at).map_or(READ_BYTES, |left| left.min(READ_BYTES));
        file.read_exact_at(&mut buffer[..wanted], at)?;
        hasher.update(&buffer[..wanted]);
        at += wanted as u64;
    }
    Ok(hasher.finalize().into())
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
