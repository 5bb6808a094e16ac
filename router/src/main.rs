//! `pd-router`: dual-dispatch router with an OpenAI API.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match pd_router::run(pd_router::args::Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why:#}");
            ExitCode::FAILURE
        }
    }
}
