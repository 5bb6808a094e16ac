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
mod weights;

use clap::Parser;
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
            let code = failure(&format!("--log-level: {error}"));
            pd_log::flush();
            return code;
        }
    };
    pd_log::init(filter);
    let code = match commands::execute(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => failure(&without_repeats(&why)),
    };
    pd_log::flush();
    code
}

/// Says why the process fails; if that cannot be written, the exit status says it alone.
fn failure(why: &str) -> ExitCode {
    pd_log::to_stderr(format_args!("error: {why}"));
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
