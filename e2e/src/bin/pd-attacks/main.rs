//! Attacks a router and its workers, each process in a memory cgroup, and says what it cost others: `attacks` runs each
//! attack at its full count, `soak` all of them in turn under a steady load.

#![allow(clippy::print_stdout, reason = "its table is what it is for")]

mod attackers;
mod bench;
mod probe;
mod soak;
mod stand;
mod strangers;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Each attack at its full count; a table, and a failure where a bound is broken.
    Attacks(bench::BenchArgs),
    /// Frames of strangers at all ports of workers that have a key, under a load.
    Strangers(strangers::StrangersArgs),
    /// Two pairs under a steady load, with the attacks in turn.
    Soak(soak::SoakArgs),
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    pd_e2e::attacks::usage::raise_descriptors()?;
    match Cli::parse().command {
        Command::Attacks(args) => bench::run(args).await,
        Command::Strangers(args) => strangers::run(args).await,
        Command::Soak(args) => soak::run(args).await,
    }
}
