//! `kubectl pd`: shows the `PDDeployment`s of a cluster, says what holds them back, and moves them.

mod args;
mod bundle;
mod connection;
mod doctor;
mod drain;
mod explain;
#[cfg(test)]
mod fixture;
mod metrics;
mod rollout;
mod rotate_keys;
mod status;
mod text;
mod view;
mod worker;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match args::Cli::parse().execute() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
