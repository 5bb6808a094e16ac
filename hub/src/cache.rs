//! The hub's cache folder, laid out as the hub's own tools lay it out, so that they read what is fetched here and the
//! other way round.
//!
//! ```text
//! models--Qwen--Qwen3-8B/
//!   blobs/HASH              a file's content, by its hash; HASH.incomplete while it comes
//!   refs/main               the commit that a branch was last resolved to
//!   snapshots/COMMIT/PATH   links to blobs: the repository's files as they are named
//!   .pd-fetch/ledger        blobs that were checked: hash, size, time of change
//!   .pd-fetch/COMMIT        the files of a snapshot that is whole
//! .locks/models--Qwen--Qwen3-8B/HASH.lock
//! ```

use crate::client::RemoteFile;
use crate::error::HubError;
use crate::hash::FileHash;
use crate::names::{Commit, RepoName, is_inside};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LEDGER: &str = "ledger";
/// Of all of a repository.
const ALL: &str = "pd-fetch.lock";
/// How often a lock that another process holds is tried again.
const LOCK_EVERY: Duration = Duration::from_millis(500);
const READ_BYTES: usize = 1 << 20;

/// Size and time of change of blobs, by their hashes.
pub(crate) type Stamps = HashMap<String, (u64, i64)>;

/// A cache folder of the hub: of a user, or the root of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
}

/// What a cache holds of one repository.
#[derive(Clone, Debug)]
pub(crate) struct RepoCache {
    folder: PathBuf,
    locks: PathBuf,
}

/// The one right to write a blob. The kernel takes it back when its process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock(File);

/// The hub's folder of a user: `HF_HOME`, by default `~/.cache/huggingface`.
pub(crate) fn home() -> Option<PathBuf> {
    let given = |name| std::env::var_os(name).filter(|text| !text.is_empty());
    let cache = || given("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(given("HOME")?).join(".cache"));
    let by_default = || Some(cache().or_else(home)?.join("huggingface"));
    given("HF_HOME").map(PathBuf::from).or_else(by_default)
}

// === impl Lock ===

impl Drop for Lock {
    /// Closing would not do: a process that was started meanwhile has the descriptor, too, until it runs its program.
    fn drop(&mut self) {
        // An error would mean that no lock is held.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

// === impl Cache ===

impl Cache {
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// The cache of a user, as the hub's own tools find it: `HF_HUB_CACHE`, or `hub` in `HF_HOME`.
    ///
    /// # Errors
    /// The environment says nothing of it, not even a home folder.
    pub fn from_env() -> Result<Self, HubError> {
        let given = std::env::var_os("HF_HUB_CACHE").filter(|text| !text.is_empty());
        let root = given
            .map(PathBuf::from)
            .or_else(|| Some(home()?.join("hub")));
        let root = root.ok_or_else(|| {
            HubError::Config("no folder for models: set HF_HUB_CACHE or HOME".to_owned())
        })?;
        Ok(Self { root })
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the files of a commit are, once they are fetched.
    #[must_use]
    pub fn snapshot(&self, repo: &RepoName, commit: &Commit) -> PathBuf {
        self.of(repo).snapshot(commit)
    }

    pub(crate) fn of(&self, repo: &RepoName) -> RepoCache {
        self.in_folder(&repo.folder())
    }

    pub(crate) fn in_folder(&self, folder: &str) -> RepoCache {
        RepoCache {
            folder: self.root.join(folder),
            locks: self.root.join(".locks").join(folder),
        }
    }

    /// Bytes that may be written to its file system.
    pub(crate) fn free_bytes(&self) -> Result<u64, HubError> {
        let found = rustix::fs::statvfs(&self.root).map_err(io::Error::from);
        let found = found.map_err(HubError::file("ask for the room on", &self.root))?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }
}

// === impl RepoCache ===

impl RepoCache {
    pub(crate) fn snapshot(&self, commit: &Commit) -> PathBuf {
        self.folder.join("snapshots").join(commit.as_str())
    }

    pub(crate) fn blob(&self, hash: &FileHash) -> PathBuf {
        self.folder.join("blobs").join(hash.as_str())
    }

    pub(crate) fn incomplete(&self, hash: &FileHash) -> PathBuf {
        self.folder.join("blobs").join(format!("{hash}.incomplete"))
    }

    /// Bytes of a file that is on its way.
    pub(crate) fn incomplete_bytes(&self, hash: &FileHash) -> u64 {
        fs::metadata(self.incomplete(hash)).map_or(0, |found| found.len())
    }

    /// Makes its folders.
    pub(crate) fn prepare(&self) -> Result<(), HubError> {
        let own = ["blobs", "refs", "snapshots", ".pd-fetch"].map(|name| self.folder.join(name));
        for folder in own.iter().chain([&self.locks]) {
            fs::create_dir_all(folder).map_err(HubError::file("make the folder", folder))?;
        }
        Ok(())
    }

    /// Waits for the one right to write a blob; `waits` is called each time that another process has it.
    pub(crate) async fn lock(
        &self,
        hash: &FileHash,
        mut waits: impl FnMut(),
    ) -> Result<Lock, HubError> {
        let name = format!("{hash}.lock");
        loop {
            let lock = self.try_lock(&name, FlockOperation::NonBlockingLockExclusive)?;
            if let Some(lock) = lock {
                return Ok(lock);
            }
            waits();
            tokio::time::sleep(LOCK_EVERY).await;
        }
    }

    /// Keeps everything from being removed; waits while something is.
    pub(crate) async fn share(&self) -> Result<Lock, HubError> {
        loop {
            if let Some(lock) = self.try_lock(ALL, FlockOperation::NonBlockingLockShared)? {
                return Ok(lock);
            }
            tokio::time::sleep(LOCK_EVERY).await;
        }
    }

    /// The right to remove; nothing while something is fetched.
    pub(crate) fn lock_alone(&self) -> Result<Option<Lock>, HubError> {
        self.try_lock(ALL, FlockOperation::NonBlockingLockExclusive)
    }

    fn try_lock(&self, name: &str, operation: FlockOperation) -> Result<Option<Lock>, HubError> {
        let path = self.locks.join(name);
        // NFS shares a lock only of what can be read.
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(&path);
        let file = file.map_err(HubError::file("open the lock", &path))?;
        match flock(&file, operation) {
            Ok(()) => Ok(Some(Lock(file))),
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(None),
            Err(errno) => Err(HubError::file("lock", &path)(errno.into())),
        }
    }

    /// Whether a file's blob is there, and what it holds was checked and has not changed since.
    pub(crate) fn is_checked(&self, file: &RemoteFile) -> bool {
        let found = fs::metadata(self.blob(&file.hash));
        let is_as_large = found.is_ok_and(|found| found.len() == file.size);
        is_as_large && self.is_stamped(file.hash.as_str(), &self.stamps(LEDGER))
    }

    /// Whether files of a snapshot are what was checked when they got their names.
    pub(crate) fn are_unchanged(&self, commit: &Commit, paths: &[String]) -> bool {
        let (snapshot, ledger) = (self.snapshot(commit), self.stamps(LEDGER));
        paths.iter().all(|path| {
            let hash = blob_of(&snapshot.join(path));
            hash.is_some_and(|hash| self.is_stamped(&hash, &ledger))
        })
    }

    /// Whether a blob is what it was when a record was written.
    pub(crate) fn is_stamped(&self, hash: &str, record: &Stamps) -> bool {
        let found = fs::metadata(self.folder.join("blobs").join(hash));
        found.is_ok_and(|found| record.get(hash) == Some(&stamp(&found)))
    }

    /// Whether a blob that is there holds what its hash says; one that does not is removed. It is read whole, unless
    /// its size is another one.
    pub(crate) fn check(&self, file: &RemoteFile) -> Result<bool, HubError> {
        let path = self.blob(&file.hash);
        let mut content = match File::open(&path) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(HubError::file("open", &path)(error)),
        };
        let found = content
            .metadata()
            .map_err(HubError::file("look at", &path))?;
        if found.len() == file.size {
            let mut hasher = file.hash.hasher(file.size);
            let mut piece = vec![0; READ_BYTES];
            loop {
                let read = content.read(&mut piece);
                match read.map_err(HubError::file("read", &path))? {
                    0 => break,
                    bytes => hasher.update(&piece[..bytes]),
                }
            }
            if hasher.finish() == file.hash.as_str() {
                self.enter(&file.hash)?;
                return Ok(true);
            }
        }
        tracing::warn!(path = %file.path, "a cached file is not what its hash says; it is fetched again");
        fs::remove_file(&path).map_err(HubError::file("remove", &path))?;
        Ok(false)
    }

    /// Notes that a blob was checked.
    pub(crate) fn enter(&self, hash: &FileHash) -> Result<(), HubError> {
        self.write_stamp(LEDGER, hash)
    }

    /// Notes a blob in a record, as it is now.
    pub(crate) fn write_stamp(&self, record: &str, hash: &FileHash) -> Result<(), HubError> {
        let blob = self.blob(hash);
        let found = fs::metadata(&blob).map_err(HubError::file("look at", &blob))?;
        let (size, changed) = stamp(&found);
        append(&self.own(record), &format!("{hash} {size} {changed}\n"))
    }

    /// Gives a blob its name in a snapshot.
    pub(crate) fn link(&self, commit: &Commit, file: &RemoteFile) -> Result<(), HubError> {
        let link = self.snapshot(commit).join(&file.path);
        let depth = file.path.matches('/').count();
        let target = format!("{}../../blobs/{}", "../".repeat(depth), file.hash);
        if fs::read_link(&link).is_ok_and(|found| found == Path::new(&target)) {
            return Ok(());
        }
        let folder = link.parent().unwrap_or(&link);
        fs::create_dir_all(folder).map_err(HubError::file("make the folder", folder))?;
        // Another fetch may make it at the same time: whole links replace whole links.
        let fresh = folder.join(format!(".{}.{}.pd-fetch", file.hash, std::process::id()));
        let made = symlink(&target, &fresh).and_then(|()| fs::rename(&fresh, &link));
        made.map_err(HubError::file("make the link", &link))?;
        self.note_link(commit, file)
    }

    /// Notes which commit a branch or tag is.
    pub(crate) fn write_ref(&self, revision: &str, commit: &Commit) -> Result<(), HubError> {
        if Commit::parse(revision).is_some() || !is_inside(revision) {
            return Ok(());
        }
        let path = self.folder.join("refs").join(revision);
        let folder = path.parent().unwrap_or(&path);
        fs::create_dir_all(folder).map_err(HubError::file("make the folder", folder))?;
        write_whole(&path, commit.as_str())
    }

    /// The commit that a branch or tag was last resolved to here.
    pub(crate) fn read_ref(&self, revision: &str) -> Option<Commit> {
        let path = self.folder.join("refs").join(revision);
        let text = is_inside(revision).then(|| fs::read_to_string(path));
        Commit::parse(text?.ok()?.trim())
    }

    /// Notes that all that is wanted of a commit is there.
    pub(crate) fn write_whole(
        &self,
        commit: &Commit,
        files: &[RemoteFile],
    ) -> Result<(), HubError> {
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        let text = serde_json::json!(paths).to_string();
        write_whole(&self.own(commit.as_str()), &text)
    }

    /// The files of a commit that was whole; nothing where it was not.
    pub(crate) fn whole(&self, commit: &Commit) -> Option<Vec<String>> {
        let text = fs::read_to_string(self.own(commit.as_str())).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A record of this code's own.
    pub(crate) fn own(&self, name: &str) -> PathBuf {
        self.folder.join(".pd-fetch").join(name)
    }

    /// Blobs of a record, with their size and time of change. A line that a crash cut is no line.
    pub(crate) fn stamps(&self, record: &str) -> Stamps {
        let text = fs::read_to_string(self.own(record)).unwrap_or_default();
        let entry = |line: &str| {
            let mut words = line.split(' ');
            let (hash, size, changed) = (words.next()?, words.next()?, words.next()?);
            Some((hash.to_owned(), (size.parse().ok()?, changed.parse().ok()?)))
        };
        text.lines().filter_map(entry).collect()
    }
}

/// The blob to which a link of a snapshot leads.
pub(crate) fn blob_of(link: &Path) -> Option<String> {
    let target = fs::read_link(link).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

/// One write, so that two processes do not mix their lines.
pub(crate) fn append(path: &Path, line: &str) -> Result<(), HubError> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.map_err(HubError::file("write", path))
}

/// Size and time of change, by which a file is known not to have changed.
fn stamp(found: &Metadata) -> (u64, i64) {
    let nanos = found.mtime().wrapping_mul(1_000_000_000);
    (found.len(), nanos.wrapping_add(found.mtime_nsec()))
}

/// Writes a file that readers see whole or not at all.
fn write_whole(path: &Path, text: &str) -> Result<(), HubError> {
    let fresh = path.with_extension(format!("{}.pd-fetch", std::process::id()));
    let written = File::create(&fresh).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    });
    written.map_err(HubError::file("write", path))
}

#[cfg(test)]
mod tests;
