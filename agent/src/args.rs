//! Command line in SGLang's words (K4): a start script written for SGLang's server starts this one.
//! Here the flags are read; `args/check.rs` says which may stand together; `wiring` gives them
//! their meaning.

mod check;
mod device;
mod disaggregation;
mod model;
mod schedule;
mod server;
mod sglang;
mod transfer;

pub(crate) use check::ArgError;
pub(crate) use device::{DeviceArgs, DeviceName};
pub(crate) use disaggregation::DisaggregationArgs;
pub(crate) use model::{ModelArgs, SamplingSource};
pub(crate) use schedule::ScheduleArgs;
pub(crate) use server::{ServerArgs, host};
pub(crate) use transfer::TransferArgs;

use clap::{CommandFactory, Parser, error::ErrorKind};
use std::io::Write;

/// What `--version` prints after the name.
#[cfg(feature = "cuda")]
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (with CUDA kernels)");
#[cfg(not(feature = "cuda"))]
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (CPU only: built without CUDA kernels)"
);

/// Serves one model: unified, or as the prefill or the decode side of a pair.
#[derive(Debug, Parser)]
// As SGLang's parser does, the last of a flag that is given twice counts.
#[command(
    name = "pd-agent",
    version = VERSION,
    about,
    args_override_self = true,
    after_help = "pd-agent --help-sglang: SGLang's other flags, and what becomes of each\n\
                  pd-agent kv-probe --help: measures how KV moves between two nodes, without a model"
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
    pub(crate) sglang: sglang::SglangArgs,
}

// === impl Args ===

impl Args {
    /// The command line, or exit status 2 with every rule that it breaks.
    pub(crate) fn from_command_line() -> Self {
        if std::env::args_os().any(|word| word == "--help-sglang") {
            // A reader that has gone wants no more of it.
            let _closed = std::io::stdout().write_all(sglang::SglangArgs::help().as_bytes());
            std::process::exit(0);
        }
        let args = Self::parse();
        let broken = args.broken_rules();
        if broken.is_empty() {
            if args.server.check {
                std::process::exit(0);
            }
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
