//! The socket at which prefill hands its files over. An abstract one lives in a network namespace and leaves no file
//! behind. One in a directory is found from every namespace that sees the directory, so two pods of a node can share
//! memory, too. Both sides reach it by their own path: its name is drawn at random, so a process that finds it there has
//! found the other's directory.

use pd_protocol::control::ShmOffer;
use rustix::process::geteuid;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::{self, DirEntry, Permissions};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest path of a Unix socket: `sun_path` without its final zero. Source: unix(7).
const PATH_BYTES_MAX: usize = 107;
/// Begins the names of all sockets.
const PREFIX: &str = "pdserve-kv-";
/// Prefix of a socket without a listener yet.
const UNFINISHED: &str = ".";
/// No process takes longer from creating a socket's file to listening at it.
const UNFINISHED_MAX: Duration = Duration::from_secs(60);
/// Files that are looked at for what dead processes have left; a directory with more is not ours.
const FILES_MAX: usize = 4096;

/// A socket that peers can connect to.
pub(super) struct Listening {
    pub(super) listener: UnixListener,
    pub(super) offer: ShmOffer,
    /// Removed with the listener.
    pub(super) file: Option<SocketFile>,
}

/// A socket's file, removed when dropped.
pub(super) struct SocketFile(PathBuf);

/// Why a directory cannot hold sockets.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    #[error("it is no directory")]
    NoDirectory,
    #[error(
        "its path has {actual} bytes; at most {max} leave room for a socket's name, so choose a shorter one"
    )]
    TooLong { actual: usize, max: usize },
    #[error(
        "{0}; it must exist and be writable for user {user} of prefill",
        user = geteuid().as_raw()
    )]
    Io(#[from] io::Error),
}

/// Why a peer's socket is not reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error(
        "prefill's socket is not in this network namespace, as between two pods: give both \
         --disaggregation-shm-dir and one directory of their node"
    )]
    OtherNetwork,
    #[error(
        "prefill shares its memory by its --disaggregation-shm-dir, and decode has none: give both one \
         directory of their node"
    )]
    NoDirectory,
    #[error(
        "decode's --disaggregation-shm-dir {} is not prefill's: give both one directory of their node",
        .0.display()
    )]
    OtherDirectory(PathBuf),
    #[error("prefill names a socket {0:?}, which is none of pdserve's")]
    Name(String),
    #[error(
        "prefill runs as user {peer}, decode as user {own}: memory is shared within one user only"
    )]
    OtherUser { peer: u32, own: u32 },
    #[error("cannot connect to prefill's socket: {0}")]
    Io(#[from] io::Error),
}

/// Checks that `dir` can hold sockets, as far as a side without sockets there can check.
///
/// # Errors
/// It cannot.
pub(crate) fn check_dir(dir: &Path) -> Result<(), DirError> {
    let actual = dir.as_os_str().len();
    let max = PATH_BYTES_MAX - "/".len() - UNFINISHED.len() - new_name().len();
    if actual > max {
        return Err(DirError::TooLong { actual, max });
    }
    if fs::metadata(dir)?.is_dir() {
        Ok(())
    } else {
        Err(DirError::NoDirectory)
    }
}

// === impl Listening ===

impl Listening {
    /// Listens at an abstract socket.
    pub(super) fn in_namespace(rank: impl std::fmt::Display) -> io::Result<Self> {
        let name = format!("{PREFIX}{rank}");
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        Ok(Self {
            listener,
            offer: ShmOffer {
                host_id: super::host_id(),
                socket_name: name,
                in_dir: false,
            },
            file: None,
        })
    }

    /// Listens at a file in `dir`, which only processes of this user may open, and removes those that processes of
    /// this user have left.
    ///
    /// # Errors
    /// The directory cannot hold it.
    pub(super) fn in_dir(dir: &Path) -> Result<Self, DirError> {
        check_dir(dir)?;
        remove_dead(dir)?;
        let name = new_name();
        let unfinished = SocketFile(dir.join(format!("{UNFINISHED}{name}")));
        let listener = UnixListener::bind(&unfinished.0)?;
        fs::set_permissions(&unfinished.0, Permissions::from_mode(0o600))?;
        // A socket that is found under its name has a listener, or its process is dead.
        let file = SocketFile(dir.join(&name));
        fs::rename(&unfinished.0, &file.0)?;
        Ok(Self {
            listener,
            offer: ShmOffer {
                host_id: super::host_id(),
                socket_name: name,
                in_dir: true,
            },
            file: Some(file),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It was renamed, or another process cleared the directory.
        let _ = fs::remove_file(&self.0);
    }
}

/// Connects to what prefill offers; `dir` is this side's directory. The other end is of this user.
///
/// # Errors
/// It is not reached from here.
pub(super) async fn connect(
    offer: &ShmOffer,
    dir: Option<&Path>,
) -> Result<tokio::net::UnixStream, ConnectError> {
    let stream = if offer.in_dir {
        let dir = dir.ok_or(ConnectError::NoDirectory)?;
        if !is_name(&offer.socket_name) {
            return Err(ConnectError::Name(offer.socket_name.clone()));
        }
        let connected = tokio::net::UnixStream::connect(dir.join(&offer.socket_name)).await;
        connected.map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                return ConnectError::OtherDirectory(dir.to_owned());
            }
            error.into()
        })?
    } else {
        let addr = SocketAddr::from_abstract_name(&offer.socket_name)?;
        let connected = UnixStream::connect_addr(&addr).map_err(|error| {
            if error.kind() == io::ErrorKind::ConnectionRefused {
                return ConnectError::OtherNetwork;
            }
            error.into()
        })?;
        connected.set_nonblocking(true)?;
        tokio::net::UnixStream::from_std(connected)?
    };
    let (peer, own) = (stream.peer_cred()?.uid(), geteuid().as_raw());
    if peer == own {
        Ok(stream)
    } else {
        Err(ConnectError::OtherUser { peer, own })
    }
}

/// It cannot be guessed.
fn new_name() -> String {
    format!("{PREFIX}{:032x}", rand::random::<u128>())
}

fn is_name(name: &str) -> bool {
    let token = name.strip_prefix(PREFIX);
    token.is_some_and(|token| token.len() == 32 && token.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Removes sockets of this user that have lost their listener.
fn remove_dead(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)?.take(FILES_MAX) {
        let entry = entry?;
        match is_dead(&entry) {
            Ok(true) => {
                tracing::debug!(socket = %entry.path().display(), "removing the socket of a dead process");
                drop(SocketFile(entry.path()));
            }
            Ok(false) => {}
            Err(error) => {
                // It may have gone meanwhile.
                tracing::debug!(socket = %entry.path().display(), %error, "cannot remove a socket; left in place");
            }
        }
    }
    Ok(())
}

fn is_dead(entry: &DirEntry) -> io::Result<bool> {
    let name = entry.file_name();
    let unfinished = name.as_bytes().strip_prefix(UNFINISHED.as_bytes());
    let name = std::str::from_utf8(unfinished.unwrap_or(name.as_bytes()));
    if !name.is_ok_and(is_name) {
        return Ok(false);
    }
    // Of the entry itself, not of what a link leads to.
    let file = entry.metadata()?;
    if !file.file_type().is_socket() || file.uid() != geteuid().as_raw() {
        return Ok(false);
    }
    let age = file.modified()?.elapsed().unwrap_or_default();
    if unfinished.is_some() && age < UNFINISHED_MAX {
        return Ok(false);
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A live process that takes no connections now lets one wait.
    socket.set_nonblocking(true)?;
    let connected = socket.connect(&SockAddr::unix(entry.path())?);
    Ok(connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused))
}

#[cfg(test)]
mod tests;
