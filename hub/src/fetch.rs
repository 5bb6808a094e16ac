//! Fetches a whole model.

use crate::cache::{Cache, RepoCache};
use crate::choose::choose;
use crate::clean::CleanUp;
use crate::client::{Hub, Listing, RemoteFile};
use crate::download::Route;
use crate::error::HubError;
use crate::names::{Commit, RepoName};
use crate::progress::Progress;
use futures_util::{TryStreamExt, stream};
use std::path::PathBuf;
use tokio::task::spawn_blocking;

/// Files that are fetched at once where nothing else is said: a CDN gives one connection a part of a fast link.
pub const CONNECTIONS: usize = 8;

/// What is to be fetched, and where to.
#[derive(Clone, Debug)]
pub struct Fetch {
    pub repo: RepoName,
    /// Branch, tag or commit.
    pub revision: String,
    /// Only this file of it, such as one GGUF of many.
    pub file: Option<String>,
    pub cache: Cache,
    /// Files that are fetched at once, at least 1.
    pub connections: usize,
    /// What is removed from the cache to make room, once it is known which commit comes; nothing by default.
    pub clean_up: Option<CleanUp>,
}

/// A model that is there, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    pub commit: Commit,
    /// The folder of its files, or the one file.
    pub path: PathBuf,
    pub bytes: u64,
}

/// The commit that a revision means, and the bytes that a fetch of it would bring to an empty cache.
///
/// # Errors
/// The hub does not have it or does not let this one see it, or stays unreachable.
pub async fn look_up(
    hub: &Hub,
    repo: &RepoName,
    revision: &str,
    file: Option<&str>,
) -> Result<(Commit, u64), HubError> {
    let listing = hub.list(repo, revision).await?;
    let files = choose(&listing, repo, file)?;
    let bytes = files.iter().map(|file| file.size).sum();
    Ok((listing.commit, bytes))
}

// === impl Fetch ===

impl Fetch {
    /// Fetches what is missing. For a commit that is there, whole and unchanged, the hub is not
    /// asked: a commit stays what it is.
    ///
    /// # Errors
    /// The hub does not have it or does not let this one see it; it stays unreachable; there is no room; a file cannot be
    /// written, or keeps coming with another hash. What came is kept, and the next call goes on from there.
    pub async fn run(&self, hub: &Hub, progress: &Progress) -> Result<Fetched, HubError> {
        if let Some(fetched) = self.find_commit().await? {
            progress.begin(fetched.bytes, fetched.bytes);
            progress.done();
            return Ok(fetched);
        }
        let listing = hub.list(&self.repo, &self.revision).await?;
        self.take(hub, progress, &listing).await
    }

    /// What is there of a commit that the revision names itself, if no file of it has changed since it was checked.
    async fn find_commit(&self) -> Result<Option<Fetched>, HubError> {
        let cache = self.cache.of(&self.repo);
        let Some(commit) = Commit::parse(&self.revision).filter(|_| self.find().is_ok()) else {
            return Ok(None);
        };
        cache.prepare()?;
        let _shared = cache.share().await?;
        let paths = self.paths(&cache, &commit);
        let is_unchanged = cache.are_unchanged(&commit, &paths);
        let found = self.find().ok().filter(|_| is_unchanged);
        if found.is_some() {
            cache.note_use(&commit)?;
        }
        Ok(found)
    }

    /// Files that are wanted of a commit, as far as it is known to be whole.
    fn paths(&self, cache: &RepoCache, commit: &Commit) -> Vec<String> {
        match &self.file {
            Some(path) => vec![path.clone()],
            None => cache.whole(commit).unwrap_or_default(),
        }
    }

    /// Fetches what is missing, or with `HF_HUB_OFFLINE=1` takes what is there; so it does where all of it is there and
    /// the hub does not answer.
    ///
    /// # Errors
    /// As of [`Self::run`] and [`Self::find`].
    pub async fn run_if_online(&self, hub: &Hub, progress: &Progress) -> Result<Fetched, HubError> {
        let known = self.find();
        if std::env::var("HF_HUB_OFFLINE").is_ok_and(|text| text == "1") {
            return known;
        }
        let Ok(known) = known else {
            return self.run(hub, progress).await;
        };
        match hub.list_within(&self.repo, &self.revision, 1).await {
            Ok(listing) => self.take(hub, progress, &listing).await,
            Err(error) if error.is_final() => Err(error),
            Err(error) => {
                tracing::warn!(%error, path = %known.path.display(), "the model that is there is used");
                Ok(known)
            }
        }
    }

    /// Fetches what is missing of a listing.
    async fn take(
        &self,
        hub: &Hub,
        progress: &Progress,
        listing: &Listing,
    ) -> Result<Fetched, HubError> {
        let mut files = choose(listing, &self.repo, self.file.as_deref())?;
        // The largest first, so that no large one is left over at the end.
        files.sort_by_key(|file| std::cmp::Reverse(file.size));
        let (commit, cache) = (&listing.commit, &self.cache.of(&self.repo));
        cache.prepare()?;
        self.remove_unused(commit).await;
        let _shared = cache.share().await?;
        let have: Vec<u64> = files.iter().map(|file| bytes_there(cache, file)).collect();
        let total = files.iter().map(|file| file.size).sum();
        let there = have.iter().sum();
        self.check_room(total - there)?;
        progress.begin(there, total);
        tracing::info!(repo = %self.repo, %commit, files = files.len(), bytes = total, there, "fetching");
        let route = Route {
            hub,
            repo: &self.repo,
            commit,
            cache,
            progress,
        };
        stream::iter(files.iter().zip(have).map(Ok))
            .try_for_each_concurrent(self.connections.max(1), |(file, have)| {
                route.fetch(file, have)
            })
            .await?;
        cache.write_ref(&self.revision, commit)?;
        if self.file.is_none() {
            cache.write_whole(commit, &files)?;
        }
        cache.note_use(commit)?;
        progress.done();
        Ok(self.fetched(commit.clone(), total))
    }

    /// Makes room. What cannot be removed keeps nothing from being fetched.
    async fn remove_unused(&self, comes: &Commit) {
        let Some(mut rule) = self.clean_up.clone() else {
            return;
        };
        rule.keep.push((self.repo.clone(), comes.clone()));
        let cache = self.cache.clone();
        let removed = spawn_blocking(move || cache.remove_unused(&rule)).await;
        match removed.expect("a removal does not panic") {
            Ok(removed) => {
                for it in removed {
                    tracing::info!(folder = it.folder, commit = %it.commit, bytes = it.bytes, "removed, unused");
                }
            }
            Err(error) => tracing::warn!(%error, "what is unused was not removed"),
        }
    }

    /// What is there already, without asking the hub.
    ///
    /// # Errors
    /// The cache does not have all of it.
    pub fn find(&self) -> Result<Fetched, HubError> {
        let cache = self.cache.of(&self.repo);
        let commit = Commit::parse(&self.revision).or_else(|| cache.read_ref(&self.revision));
        let missing = || HubError::NotHere {
            repo: self.repo.clone(),
            revision: self.revision.clone(),
            folder: self.cache.root().to_owned(),
        };
        let commit = commit.ok_or_else(missing)?;
        let paths = self.paths(&cache, &commit);
        let folder = cache.snapshot(&commit);
        let sizes = paths.iter().map(|path| {
            let found = std::fs::metadata(folder.join(path)).ok()?;
            Some(found.len())
        });
        let bytes = sizes.sum::<Option<u64>>().filter(|bytes| *bytes > 0);
        Ok(self.fetched(commit, bytes.ok_or_else(missing)?))
    }

    fn fetched(&self, commit: Commit, bytes: u64) -> Fetched {
        let folder = self.cache.snapshot(&self.repo, &commit);
        let path = match &self.file {
            Some(file) => folder.join(file),
            None => folder,
        };
        Fetched {
            commit,
            path,
            bytes,
        }
    }

    fn check_room(&self, needed: u64) -> Result<(), HubError> {
        let free = self.cache.free_bytes()?;
        if needed > free {
            return Err(HubError::NoRoom {
                folder: self.cache.root().to_owned(),
                needed,
                free,
            });
        }
        Ok(())
    }
}

/// Bytes of a file that need not be fetched, as far as its size says.
fn bytes_there(cache: &RepoCache, file: &RemoteFile) -> u64 {
    let whole = std::fs::metadata(cache.blob(&file.hash)).map_or(0, |found| found.len());
    if whole == file.size {
        return whole;
    }
    let partial = cache.incomplete_bytes(&file.hash);
    if partial > file.size { 0 } else { partial }
}
