//! The command line in SGLang's words (K4): a start script written for SGLang's server starts this
//! one. This file reads the flags, `args/check.rs` rejects bad combinations, and `wiring` acts on
//! them.

mod check;
mod device;
mod disaggregation;
mod model;
mod schedule;
mod server;
mod sglang;
mod speculative;
mod transfer;

pub(crate) use check::ArgError;
pub(crate) use device::{DeviceArgs, DeviceName};
pub(crate) use disaggregation::DisaggregationArgs;
pub(crate) use model::{ModelArgs, SamplingSource, dtype, kv_cache_dtype};
pub(crate) use schedule::ScheduleArgs;
pub(crate) use server::{ServerArgs, host};
pub(crate) use speculative::SpeculativeArgs;
pub(crate) use transfer::TransferArgs;

use clap::{CommandFactory, Parser, error::ErrorKind};
use std::io::Write;

/// The flags after `pd-agent WORD`, if that is the first word; exits if one of them is wrong. Not a clap subcommand,
/// because SGLang's flags stand at the top level and must keep their form.
pub(crate) fn after_word<T: Parser>(word: &str) -> Option<T> {
    let mut words = std::env::args_os().skip(1).peekable();
    let is_first = words.peek().is_some_and(|first| first == word);
    is_first.then(|| T::parse_from(words))
}

/// What `--version` prints after the name.
#[cfg(feature = "cuda")]
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (with CUDA kernels)");
#[cfg(not(feature = "cuda"))]
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (CPU only: built without CUDA kernels)"
);

/// Serves one model: unified, or as the prefill or decode worker of a pair.
#[derive(Debug, Parser)]
// As in SGLang's parser, the last value of a repeated flag wins.
#[command(
    name = "pd-agent",
    version = VERSION,
    about,
    args_override_self = true,
    after_help = "pd-agent --help-sglang: SGLang's other flags, and how each is handled\n\
                  pd-agent kv-probe --help: benchmarks the KV transfer path between two nodes, without a model\n\
                  pd-agent replay --help: computes requests again that --observe-kv recorded, and says where bits part"
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
    pub(crate) speculative: SpeculativeArgs,
    #[command(flatten)]
    pub(crate) disaggregation: DisaggregationArgs,
    #[command(flatten)]
    pub(crate) sglang: sglang::SglangArgs,
}

// === impl Args ===

impl Args {
    /// Parses the command line, or exits with status 2 and every rule that it breaks.
    pub(crate) fn from_command_line() -> Self {
        if std::env::args_os().any(|word| word == "--help-sglang") {
            // A closed pipe means that its reader has seen enough.
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
mod fuzz;
#[cfg(test)]
mod tests;
