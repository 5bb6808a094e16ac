//! `pd-router`: dual-dispatch router with an OpenAI API.

use clap::Parser;
use std::process::ExitCode;

/// Gives memory back to the kernel soon after a burst of large or many requests, which glibc's keeps.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    pd_router::run(pd_router::Args::parse())
}
