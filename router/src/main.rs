//! `pd-router`: dual-dispatch router with an OpenAI API.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    pd_router::run(pd_router::Args::parse())
}
