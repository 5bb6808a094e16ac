//! A program run to its end, its output kept.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Output;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

/// # Errors
/// When it cannot be started, or still runs after `limit` and is ended.
pub(crate) async fn run<A: AsRef<OsStr>>(
    program: &Path,
    args: &[A],
    limit: Duration,
) -> Result<Output> {
    let mut command = Command::new(program);
    command.args(args).kill_on_drop(true);
    match timeout(limit, command.output()).await {
        Ok(output) => output.with_context(|| format!("start {}", program.display())),
        Err(_) => bail!("{} still ran after {limit:?}", program.display()),
    }
}
