//! Fetches one file: resumed where an earlier attempt ended, repeated while the hub or the network fails, and checked
//! by its hash before it gets its name.

use crate::cache::{Lock, RepoCache};
use crate::client::{Content, Hub, RemoteFile, passing};
use crate::error::{HubError, RequestError};
use crate::hash::Hasher;
use crate::names::{Commit, RepoName};
use crate::progress::Progress;
use pd_protocol::Backoff;
use std::fs::{self, File, OpenOptions};
use std::future::Future;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};

/// Attempts in a row that bring no byte, after which a fetch ends with what it ran into.
pub(crate) const FRUITLESS_MAX: u32 = 8;
/// Times that a file may come with a wrong hash.
const WRONG_MAX: u32 = 3;
const RETRY: Backoff =
    Backoff::doubling(Duration::from_millis(500), Duration::from_secs(30)).jitter(0.2);
/// Pieces that wait to be written: a slow disk slows the network down.
const PIECES_MAX: usize = 64;
const READ_BYTES: usize = 1 << 20;

/// Where a file comes from and goes to.
#[derive(Clone, Copy)]
pub(crate) struct Route<'a> {
    pub(crate) hub: &'a Hub,
    pub(crate) repo: &'a RepoName,
    pub(crate) commit: &'a Commit,
    pub(crate) cache: &'a RepoCache,
    pub(crate) progress: &'a Progress,
}

/// How an attempt ended that brought not all.
enum Ended {
    Request(RequestError),
    Disk(HubError),
    /// All bytes came, and they hash to this.
    WrongHash(String),
}

/// How far a writer got.
enum Written {
    /// The file is there, by its name.
    Whole,
    /// Some of it; the next attempt goes on from there.
    Part,
    /// All of it, and it hashes to this: it is gone again.
    Wrong(String),
}

/// What is asked of the thread that writes.
enum Piece {
    /// The server begins at the beginning.
    FromStart,
    Bytes(bytes::Bytes),
}

/// Repeats a request while what it runs into may go by, so many times.
pub(crate) async fn persist<T, F>(
    what: &str,
    attempts_max: u32,
    mut request: impl FnMut() -> F,
) -> Result<T, HubError>
where
    F: Future<Output = Result<T, RequestError>>,
{
    let mut failures = 0;
    loop {
        match request().await {
            Ok(answer) => return Ok(answer),
            Err(error) => pause(what, error, (&mut failures, attempts_max)).await?,
        }
    }
}

/// Waits before the next attempt, or gives up.
async fn pause(
    what: &str,
    error: RequestError,
    (failures, attempts_max): (&mut u32, u32),
) -> Result<(), HubError> {
    let (why, asked_for) = match error {
        RequestError::Final(error) => return Err(error),
        RequestError::Passing { why, pause } => (why, pause),
    };
    *failures += 1;
    if *failures >= attempts_max {
        return Err(HubError::GaveUp {
            what: what.to_owned(),
            why,
            attempts: *failures,
        });
    }
    let pause = RETRY.jittered(*failures - 1, rand::random());
    let pause = pause.max(asked_for.unwrap_or_default());
    tracing::warn!(
        what,
        why,
        pause_ms = pause.as_millis(),
        "asking the hub again"
    );
    tokio::time::sleep(pause).await;
    Ok(())
}

impl Route<'_> {
    /// Fetches a file unless it is there. `counted` are the bytes of it that the progress counts already.
    pub(crate) async fn fetch(self, file: &RemoteFile, mut counted: u64) -> Result<(), HubError> {
        let Route {
            cache, progress, ..
        } = self;
        let wait = || {
            progress.waits_for(Some(format!("another process fetches {}", file.path)));
            progress.move_to(&mut counted, cache.incomplete_bytes(&file.hash));
        };
        let lock = Arc::new(cache.lock(&file.hash, wait).await?);
        progress.waits_for(None);
        if !cache.is_checked(file) {
            let (cache, unchecked, held) = (cache.clone(), file.clone(), lock.clone());
            let is_there = spawn_blocking(move || {
                let _held = held;
                cache.check(&unchecked)
            });
            let is_there = is_there.await;
            if !is_there.expect("a check does not panic")? {
                self.download(file, &lock, &mut counted).await?;
            }
        }
        progress.move_to(&mut counted, file.size);
        cache.link(self.commit, file)
    }

    async fn download(
        self,
        file: &RemoteFile,
        lock: &Arc<Lock>,
        counted: &mut u64,
    ) -> Result<(), HubError> {
        let (mut failures, mut wrong) = (0, 0);
        loop {
            let before = self.cache.incomplete_bytes(&file.hash);
            let ended = match self.attempt(file, lock, counted).await {
                Ok(()) => return Ok(()),
                Err(ended) => ended,
            };
            match ended {
                Ended::Disk(error) => return Err(error),
                Ended::WrongHash(found) => {
                    wrong += 1;
                    let path = file.path.clone();
                    tracing::warn!(path, found, "a file came with a wrong hash");
                    if wrong == WRONG_MAX {
                        return Err(HubError::WrongHash {
                            path,
                            found,
                            expected: file.hash.to_string(),
                            attempts: wrong,
                        });
                    }
                }
                Ended::Request(error) => {
                    if self.cache.incomplete_bytes(&file.hash) > before {
                        failures = 0;
                    }
                    let what = format!("{} of {}", file.path, self.repo);
                    pause(&what, error, (&mut failures, FRUITLESS_MAX)).await?;
                }
            }
        }
    }

    /// One request for what is missing.
    async fn attempt(
        self,
        file: &RemoteFile,
        lock: &Arc<Lock>,
        counted: &mut u64,
    ) -> Result<(), Ended> {
        let cache = self.cache;
        let mut have = cache.incomplete_bytes(&file.hash);
        if have > file.size {
            have = 0;
        }
        self.progress.move_to(counted, have);
        let writer = Writer {
            file: file.clone(),
            incomplete: cache.incomplete(&file.hash),
            blob: cache.blob(&file.hash),
            have,
            _lock: lock.clone(),
        };
        let (pieces_tx, pieces) = mpsc::channel(PIECES_MAX);
        let written: JoinHandle<_> = spawn_blocking(move || writer.run(pieces));
        let mut received = Ok(());
        if have < file.size {
            received = self.receive(file, have, &pieces_tx, counted).await;
        }
        drop(pieces_tx);
        let written = written.await.expect("the writer does not panic");
        match (written, received) {
            (Err(error), _) => Err(Ended::Disk(error)),
            (Ok(_), Err(error)) => Err(Ended::Request(error)),
            (Ok(Written::Whole), Ok(())) => {
                let noted = cache.note_written(&file.hash);
                noted
                    .and_then(|()| cache.enter(&file.hash))
                    .map_err(Ended::Disk)
            }
            // It is shorter than when its length was read: someone else cut it.
            (Ok(Written::Part), Ok(())) => Err(Ended::Request(RequestError::Passing {
                why: "the file was cut while it came".to_owned(),
                pause: None,
            })),
            (Ok(Written::Wrong(found)), Ok(())) => {
                self.progress.move_to(counted, 0);
                Err(Ended::WrongHash(found))
            }
        }
    }

    /// Hands what comes to the writer, until all is there.
    async fn receive(
        self,
        file: &RemoteFile,
        have: u64,
        pieces: &mpsc::Sender<Piece>,
        counted: &mut u64,
    ) -> Result<(), RequestError> {
        let cut = |why: String| RequestError::Passing { why, pause: None };
        let content = self.hub.open(self.repo, self.commit, &file.path, have);
        let Content { mut response, from } = content.await?;
        let mut got = from;
        if from < have && pieces.send(Piece::FromStart).await.is_err() {
            return Ok(());
        }
        while let Some(piece) = response.chunk().await.map_err(passing)? {
            got += piece.len() as u64;
            if got > file.size {
                return Err(cut(format!("more came than its {} bytes", file.size)));
            }
            // A writer that ended says why itself.
            if pieces.send(Piece::Bytes(piece)).await.is_err() {
                return Ok(());
            }
            self.progress.move_to(counted, got);
        }
        if got < file.size {
            return Err(cut(format!("{got} of its {} bytes came", file.size)));
        }
        Ok(())
    }
}

/// Writes a file in a thread of its own, and hashes it on the way.
struct Writer {
    file: RemoteFile,
    incomplete: PathBuf,
    blob: PathBuf,
    /// Bytes that are there already.
    have: u64,
    /// Held until the thread ends, which may be after a fetch that another file's failure ended.
    _lock: Arc<Lock>,
}

// === impl Writer ===

impl Writer {
    /// Ends when no piece comes any more.
    fn run(self, mut pieces: mpsc::Receiver<Piece>) -> Result<Written, HubError> {
        let at = &self.incomplete;
        let opened = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(at);
        let mut out = opened.map_err(HubError::file("open", at))?;
        let mut hasher = self.begin(&mut out, self.have)?;
        let mut len = self.have;
        while let Some(piece) = pieces.blocking_recv() {
            match piece {
                Piece::FromStart => {
                    hasher = self.begin(&mut out, 0)?;
                    len = 0;
                }
                Piece::Bytes(bytes) => {
                    let written = out.write_all(&bytes);
                    written.map_err(HubError::file("write", at))?;
                    hasher.update(&bytes);
                    len += bytes.len() as u64;
                }
            }
        }
        if len < self.file.size {
            return Ok(Written::Part);
        }
        let found = hasher.finish();
        if found != self.file.hash.as_str() {
            fs::remove_file(at).map_err(HubError::file("remove", at))?;
            return Ok(Written::Wrong(found));
        }
        out.sync_all().map_err(HubError::file("write", at))?;
        fs::rename(at, &self.blob).map_err(HubError::file("name", &self.blob))?;
        Ok(Written::Whole)
    }

    /// Goes to the end of the first `have` bytes, which are hashed, and cuts what is behind.
    fn begin(&self, out: &mut File, have: u64) -> Result<Hasher, HubError> {
        let at = &self.incomplete;
        let mut hasher = self.file.hash.hasher(self.file.size);
        out.set_len(have).map_err(HubError::file("cut", at))?;
        out.seek(SeekFrom::Start(0))
            .map_err(HubError::file("read", at))?;
        let mut piece = vec![0; READ_BYTES];
        let mut left = have;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(READ_BYTES).min(READ_BYTES);
            let read = out.read_exact(&mut piece[..most]);
            read.map_err(HubError::file("read", at))?;
            hasher.update(&piece[..most]);
            left -= most as u64;
        }
        Ok(hasher)
    }
}
