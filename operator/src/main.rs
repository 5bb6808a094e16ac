//! Operator: reconciles PDDeployments in a cluster or on this machine, and prints their definitions.

mod args;
mod cluster;
mod commands;
mod controller;
mod decide;
mod http_client;
mod local;
mod random_text;
mod render;
mod scaler;
mod scrape;

use clap::Parser;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    // Locally the console shows what happens; the log is for those who ask for it.
    let level = cli.command.log_level();
    let filter = level.map_or_else(|| Ok(EnvFilter::from_default_env()), EnvFilter::try_new);
    let filter = match filter {
        Ok(filter) => filter,
        Err(error) => {
            return failure(&format!("--log-level: {error}"));
        }
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // The report of a line that could not be written goes to stderr too, and would panic there.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    match commands::execute(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => failure(&without_repeats(&why)),
    }
}

/// Says why the process fails. A closed stderr leaves the exit status to say it.
fn failure(why: &str) -> ExitCode {
    let _closed = writeln!(std::io::stderr(), "error: {why}");
    ExitCode::FAILURE
}

/// An error with its causes; a cause that the text before it names already is left out.
fn without_repeats(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
