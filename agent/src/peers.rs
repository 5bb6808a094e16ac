//! How this process and its peers know each other: by the keys of a file, or not at all.

use anyhow::{Context, Result};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending};
use pd_identity::{Identity, Peers};
use std::path::Path;

/// The peers of a process with this key file, and a future that follows the file: run it. Without a file it does
/// nothing, forever. `changed` hears of each change whether it could be used.
///
/// # Errors
/// Why the file cannot be used.
pub(crate) fn open(
    key_file: Option<&Path>,
    changed: impl Fn(bool) + Send + 'static,
) -> Result<(Peers, BoxFuture<'static, ()>)> {
    let Some(file) = key_file else {
        return Ok((Peers::Plain, pending().boxed()));
    };
    let (identity, follow) = Identity::follow(file, changed).context("--peer-key-file")?;
    Ok((Peers::Tls(identity), follow.boxed()))
}
