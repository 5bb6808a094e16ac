//! `pd-router`: dual-dispatch router with an OpenAI API.

use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match pd_router::run(pd_router::args::Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // `eprintln!` would panic where stderr is full or closed; the exit code says it then.
            let _ = writeln!(std::io::stderr(), "error: {}", pd_router::in_one_line(&why));
            ExitCode::FAILURE
        }
    }
}
