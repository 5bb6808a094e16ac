//! Operator: reconciles PDDeployments on this machine, and prints their definitions.

mod args;
mod cluster;
mod commands;
mod controller;
mod http_client;
mod local;
mod scrape;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match commands::execute(args::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {}", told_once(&why));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes; a cause that the text before it names already is left out.
fn told_once(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
