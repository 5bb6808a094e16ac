//! Command line in SGLang's words (K4): a start script written for SGLang's server starts this one.
//! Here the flags are read; `args/check.rs` says which may stand together; `wiring` gives them
//! their meaning.

mod check;
mod device;
mod disaggregation;
mod ignored;
mod model;
mod schedule;
mod server;
mod transfer;

pub(crate) use check::ArgError;
pub(crate) use device::{DeviceArgs, DeviceName};
pub(crate) use disaggregation::{DisaggregationArgs, Mode};
pub(crate) use model::{Dtype, KvCacheDtype, ModelArgs};
pub(crate) use schedule::ScheduleArgs;
pub(crate) use server::ServerArgs;
pub(crate) use transfer::{TransferArgs, TransferBackendName};

use clap::{CommandFactory, Parser, error::ErrorKind};

/// Serves one model: monolithic, or as the prefill or the decode side of a pair.
#[derive(Debug, Parser)]
// As SGLang's parser does, the last of a flag that is given twice counts.
#[command(
    name = "pd-agent",
    version,
    about,
    args_override_self = true,
    after_help = "pd-agent kv-probe --help: measures how KV moves between two nodes, without a model"
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) schedule: ScheduleArgs,
    #[command(flatten)]
    pub(crate) disaggregation: DisaggregationArgs,
    #[command(flatten)]
    pub(crate) ignored: ignored::IgnoredArgs,
}

// === impl Args ===

impl Args {
    /// The command line, or exit status 2 with every rule that it breaks.
    pub(crate) fn from_command_line() -> Self {
        let args = Self::parse();
        let broken = args.broken_rules();
        if broken.is_empty() {
            return args;
        }
        let lines: Vec<String> = broken.iter().map(ArgError::to_string).collect();
        Self::command()
            .error(ErrorKind::ValueValidation, lines.join("\n       "))
            .exit()
    }
}

#[cfg(test)]
mod tests;
