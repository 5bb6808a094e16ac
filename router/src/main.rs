//! `pd-router`: dual-dispatch router with an OpenAI API.

use clap::Parser;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: pd_allocator::Allocator = pd_allocator::Allocator;

fn main() -> ExitCode {
    pd_router::run(pd_router::Args::parse())
}
