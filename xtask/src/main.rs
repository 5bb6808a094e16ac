//! `cargo xtask`: writes generated files, or checks that they are up to date. The tidy rules of the
//! workspace run as this crate's tests.

mod generate;
mod reference;
#[cfg(test)]
mod tidy;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Generated files of the workspace")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Write every generated file.
    Generate {
        /// Only compare; exit 1 and name each file that differs.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> anyhow::Result<()> {
    let Task::Generate { check } = Args::parse().task;
    generate::run(check)
}
