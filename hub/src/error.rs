//! Why a model could not be fetched, in words for the one who asked for it.

use crate::names::{NotARepo, RepoName};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum HubError {
    #[error(transparent)]
    Name(#[from] NotARepo),
    #[error("{0}")]
    Config(String),
    #[error("{hub} knows no repository {repo}, or it is private: {}", hint(*.has_token))]
    NoRepo {
        hub: String,
        repo: RepoName,
        has_token: bool,
    },
    #[error(
        "{hub} does not accept the token given for {repo}: check that it is whole and not revoked"
    )]
    TokenRefused { hub: String, repo: RepoName },
    #[error("{repo} is gated: accept its terms at {hub}{repo} and {}", if *.has_token { "give the token of the account that did" } else { "give that account's token" })]
    Gated {
        hub: String,
        repo: RepoName,
        has_token: bool,
    },
    #[error("{repo} has no revision {revision:?}: give a branch, a tag or a commit of it")]
    NoRevision { repo: RepoName, revision: String },
    #[error("{repo} has no file {path}")]
    NoFile { repo: RepoName, path: String },
    #[error("{0}")]
    NothingToServe(String),
    #[error("{what} of {repo} is not what the hub's API says it is: {why}")]
    Answer {
        repo: RepoName,
        what: String,
        why: String,
    },
    #[error(
        "{path} came {attempts} times with another hash than the hub says: {found} and not \
         {expected}; the hub, a mirror or a proxy changes it"
    )]
    WrongHash {
        path: String,
        found: String,
        expected: String,
        attempts: u32,
    },
    #[error(
        "{} are to be fetched and {} has room for {}: free some, or give a larger volume",
        Bytes(*.needed), .folder.display(), Bytes(*.free)
    )]
    NoRoom {
        folder: PathBuf,
        needed: u64,
        free: u64,
    },
    #[error("cannot {action} {}: {source}", .path.display())]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{what}: {why}, {attempts} times in a row without a byte")]
    GaveUp {
        what: String,
        why: String,
        attempts: u32,
    },
    #[error("{repo} at {revision} is not whole in {}: fetch it by `pd-fetch {repo} --revision {revision}`", .folder.display())]
    NotHere {
        repo: RepoName,
        revision: String,
        folder: PathBuf,
    },
}

/// What one request ran into.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// Asking again cannot help.
    Final(HubError),
    /// It may go by: the network, an overloaded or limiting hub. With the pause that the hub asks for.
    Passing {
        why: String,
        pause: Option<Duration>,
    },
}

/// A number of bytes as people read it: `1.5 GB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

// === impl HubError ===

impl HubError {
    /// Whether asking again cannot help, before someone has changed something.
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::GaveUp { .. } | Self::File { .. } | Self::NoRoom { .. }
        )
    }

    /// For `map_err` on calls about files.
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }
}

// === impl Bytes ===

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
        for (size, unit) in units {
            if self.0 >= size {
                let (whole, tenths) = (self.0 / size, self.0 % size * 10 / size);
                return match whole {
                    0..10 => write!(f, "{whole}.{tenths} {unit}"),
                    _ => write!(f, "{whole} {unit}"),
                };
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

fn hint(has_token: bool) -> &'static str {
    if has_token {
        "check its name, and that the token may read it"
    } else {
        "check its name, or give a token that may read it"
    }
}
