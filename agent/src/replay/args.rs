//! Flags of the replay; it shares those of the device with serving.

use super::recording::Recording;
use crate::args::{DeviceArgs, dtype, kv_cache_dtype};
use anyhow::{Result, anyhow};
use clap::Parser;
use pd_engine::engine::ComputeDtype;
use pd_engine::observe::ObservedEngine;
use pd_protocol::layout::KvDtype;
use std::path::PathBuf;

/// Computes requests again that `--observe-kv` recorded, and says where their bits part first.
///
/// Exit status: 0 if all is equal, 1 if something differs, 2 if it cannot be said. Use the device that the workers used.
#[derive(Debug, Parser)]
// As for serving, the last value of a repeated flag wins.
#[command(
    name = "pd-agent replay",
    bin_name = "pd-agent replay",
    version,
    args_override_self = true
)]
pub(crate) struct ReplayArgs {
    /// Files of prefill and decode workers, or folders of them; what both recorded of a request is put together
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,

    /// The model, if it is not where the workers had it
    #[arg(long, alias = "model", value_name = "PATH")]
    pub(super) model_path: Option<PathBuf>,

    /// Replay this request only
    #[arg(long, value_name = "RID")]
    rid: Option<String>,

    /// Replay the request of this room only
    #[arg(long, value_name = "ROOM")]
    room: Option<u64>,

    /// Log filter: a level, or `tracing` directives
    #[arg(long, default_value = "warn", value_name = "FILTER")]
    pub(super) log_level: String,

    #[command(flatten)]
    pub(super) device: DeviceArgs,
}

// === impl ReplayArgs ===

impl ReplayArgs {
    pub(super) fn wants(&self, recording: &Recording) -> bool {
        let of_rid = self.rid.as_ref().is_none_or(|rid| *rid == recording.rid);
        let of_room = self.room.is_none_or(|room| recording.room == Some(room));
        of_rid && of_room
    }
}

/// # Errors
/// When this program does not know the dtype.
pub(super) fn dtype_of(engine: &ObservedEngine) -> Result<Option<ComputeDtype>> {
    let name = &engine.dtype;
    dtype(name).map_err(|why| anyhow!("recorded with dtype {name}: {why}"))
}

/// # Errors
/// When this program does not know the dtype.
pub(super) fn kv_dtype_of(engine: &ObservedEngine) -> Result<Option<KvDtype>> {
    let name = &engine.kv_cache_dtype;
    kv_cache_dtype(name).map_err(|why| anyhow!("recorded with KV in {name}: {why}"))
}

#[cfg(test)]
mod tests;
