//! Node agent: one process that serves one model over HTTP, whole or as one side of a pair.

mod args;
mod delivery;
mod drain;
mod gpu;
mod http;
mod listeners;
mod memory;
mod service;
mod wiring;

use std::process::ExitCode;

fn main() -> ExitCode {
    match wiring::run(&args::Args::from_command_line()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            tracing::error!("{why:#}");
            ExitCode::FAILURE
        }
    }
}
