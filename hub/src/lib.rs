//! Fetches a model from the Hugging Face hub into the hub's own cache folder, where every tool that knows that folder
//! finds it.
//!
//! Life of a fetch: [`Hub::list`] resolves a branch to its commit and learns each file's size and hash → [`choose`]
//! leaves out what no engine reads → what is unused goes, where that was asked for → what the [`Cache`] has is kept → room
//! for the rest is checked → files are fetched
//! side by side, each by its one holder of a lock, resumed where an earlier fetch ended, and checked by its hash before
//! it gets its name → the snapshot's links are made → a record says that it is whole.
//!
//! One process killed at any point leaves a folder from which the next goes on; two at once on one volume fetch no file
//! twice.

mod cache;
mod choose;
mod clean;
mod client;
mod download;
mod error;
mod fetch;
mod hash;
mod names;
mod progress;

pub use cache::Cache;
pub use clean::{CleanUp, Removed};
pub use client::{Hub, Listing, RemoteFile, Token};
pub use error::{Bytes, HubError};
pub use fetch::{CONNECTIONS, Fetch, Fetched, look_up};
pub use hash::FileHash;
pub use names::{Commit, NotARepo, RepoName};
pub use progress::{Phase, Progress, Report};

#[cfg(doc)]
use choose::choose;
