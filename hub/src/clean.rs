//! Removes models that are no longer wanted from a cache folder.
//!
//! The rule: a commit goes that was fetched here, that is not on the list of those to keep, and that was last asked for so
//! long ago. Of it go the links and blobs that this code wrote itself, as its own records say; what other tools wrote
//! stays, and so does a blob that another snapshot links to.
//!
//! ```text
//! .pd-fetch/written        blobs that were fetched, and not only checked: hash, size, time of change
//! .pd-fetch/COMMIT.links   links that were made, and their blobs; its time is when the commit was last asked for
//! .locks/…/pd-fetch.lock   shared by those that fetch, of the one that removes alone
//! ```

use crate::cache::{Cache, RepoCache, append, blob_of};
use crate::client::RemoteFile;
use crate::error::HubError;
use crate::hash::FileHash;
use crate::names::{Commit, RepoName, is_inside};
use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const WRITTEN: &str = "written";
const LINKS: &str = "links";

/// What may be removed.
#[derive(Clone, Debug, Default)]
pub struct CleanUp {
    /// Commits that stay.
    pub keep: Vec<(RepoName, Commit)>,
    /// How long ago one must have been asked for last.
    pub unused_for: Duration,
}

/// A commit that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Folder of its repository in the cache.
    pub folder: String,
    pub commit: Commit,
    pub bytes: u64,
}

// === impl Cache ===

impl Cache {
    /// Removes what a rule lets go; repositories of which something is fetched meanwhile stay as they are.
    ///
    /// # Errors
    /// A folder cannot be read, or a file not removed. What was removed until then is gone, and the next call goes on.
    pub fn remove_unused(&self, rule: &CleanUp) -> Result<Vec<Removed>, HubError> {
        let mut removed = Vec::new();
        for name in names_in(self.root())? {
            if name.starts_with("models--") {
                let keep = rule.keep.iter().filter(|(repo, _)| repo.folder() == name);
                let keep: HashSet<&Commit> = keep.map(|(_, commit)| commit).collect();
                let repo = self.in_folder(&name);
                removed.extend(repo.remove_unused(&name, &keep, rule.unused_for)?);
            }
        }
        Ok(removed)
    }
}

// === impl RepoCache ===

impl RepoCache {
    /// Notes that a blob was fetched.
    pub(crate) fn note_written(&self, hash: &FileHash) -> Result<(), HubError> {
        self.write_stamp(WRITTEN, hash)
    }

    /// Notes that a link was made.
    pub(crate) fn note_link(&self, commit: &Commit, file: &RemoteFile) -> Result<(), HubError> {
        append(
            &self.links(commit),
            &format!("{} {}\n", file.hash, file.path),
        )
    }

    /// Notes that a commit was asked for now.
    pub(crate) fn note_use(&self, commit: &Commit) -> Result<(), HubError> {
        let path = self.links(commit);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let touched = file.and_then(|file| file.set_modified(SystemTime::now()));
        touched.map_err(HubError::file("note the time of", &path))
    }

    fn links(&self, commit: &Commit) -> PathBuf {
        self.own(&format!("{commit}.{LINKS}"))
    }

    fn remove_unused(
        &self,
        folder: &str,
        keep: &HashSet<&Commit>,
        unused_for: Duration,
    ) -> Result<Vec<Removed>, HubError> {
        if self.unused(keep, unused_for)?.is_empty() {
            return Ok(Vec::new());
        }
        let Some(_alone) = self.lock_alone()? else {
            tracing::info!(folder, "something is fetched, so nothing is removed");
            return Ok(Vec::new());
        };
        let unused = self.unused(keep, unused_for)?;
        let removed = unused.into_iter().map(|commit| {
            let bytes = self.remove(&commit)?;
            Ok(Removed {
                folder: folder.to_owned(),
                commit,
                bytes,
            })
        });
        removed.collect()
    }

    /// Commits that were fetched here and may go.
    fn unused(
        &self,
        keep: &HashSet<&Commit>,
        unused_for: Duration,
    ) -> Result<Vec<Commit>, HubError> {
        let now = SystemTime::now();
        let mut unused = Vec::new();
        for name in names_in(&self.own(""))? {
            let commit = name.split_once('.').filter(|(_, end)| *end == LINKS);
            let Some(commit) = commit.and_then(|(commit, _)| Commit::parse(commit)) else {
                continue;
            };
            let path = self.own(&name);
            let used = fs::metadata(&path).and_then(|found| found.modified());
            let used = used.map_err(HubError::file("look at", &path))?;
            let age = now.duration_since(used).unwrap_or_default();
            if age >= unused_for && !keep.contains(&commit) {
                unused.push(commit);
            }
        }
        Ok(unused)
    }

    /// Removes a commit; gives the bytes that are free now. Its record goes last, so that after a crash the next removal goes
    /// on.
    fn remove(&self, commit: &Commit) -> Result<u64, HubError> {
        let written = self.stamps(WRITTEN);
        let links = lines(&self.links(commit));
        let snapshot = self.snapshot(commit);
        // From here on it is no longer whole.
        remove_file(&self.own(commit.as_str()))?;
        let links = links.iter().filter_map(|line| line.split_once(' '));
        // One that another tool has written since is not ours.
        let links = links.filter(|(hash, path)| self.is_stamped(hash, &written) && is_inside(path));
        let mut hashes = HashSet::new();
        for (hash, path) in links {
            let link = snapshot.join(path);
            if blob_of(&link).as_deref() == Some(hash) {
                remove_file(&link)?;
            }
            hashes.insert(hash);
        }
        remove_empty(&snapshot);
        let linked = self.linked()?;
        let blobs = self.folder().join("blobs");
        let mut bytes = 0;
        for hash in hashes.into_iter().filter(|hash| !linked.contains(*hash)) {
            let blob = blobs.join(hash);
            bytes += fs::metadata(&blob).map_or(0, |found| found.len());
            remove_file(&blob)?;
        }
        remove_file(&self.links(commit))?;
        Ok(bytes)
    }

    /// Blobs to which a snapshot links.
    fn linked(&self) -> Result<HashSet<String>, HubError> {
        let mut linked = HashSet::new();
        let mut folders = vec![self.folder().join("snapshots")];
        while let Some(folder) = folders.pop() {
            for name in names_in(&folder)? {
                let path = folder.join(name);
                let is_folder = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
                if is_folder {
                    folders.push(path);
                } else {
                    linked.extend(blob_of(&path));
                }
            }
        }
        Ok(linked)
    }
}

/// Names in a folder; none where it is not there.
fn names_in(folder: &Path) -> Result<Vec<String>, HubError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(HubError::file("read the folder", folder)(error)),
    };
    let names = entries.map(|entry| Ok(entry?.file_name()));
    let names: std::io::Result<Vec<_>> = names.collect();
    let names = names.map_err(HubError::file("read the folder", folder))?;
    Ok(names
        .into_iter()
        .filter_map(|name| name.into_string().ok())
        .collect())
}

fn lines(path: &Path) -> HashSet<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn remove_file(path: &Path) -> Result<(), HubError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(HubError::file("remove", path)(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes folders that are empty, from the innermost; what others put there stays.
fn remove_empty(folder: &Path) {
    for name in names_in(folder).unwrap_or_default() {
        let path = folder.join(name);
        if fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
            remove_empty(&path);
        }
    }
    // One that is not empty stays.
    let _ = fs::remove_dir(folder);
}
