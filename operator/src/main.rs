//! Operator: reconciles PDDeployments on this machine, and prints their definitions.

mod args;
mod commands;
mod controller;
mod local;

use clap::Parser;

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    commands::execute(args::Cli::parse())
}
