//! `pd-router`: dual-dispatch router with an OpenAI API.

use clap::Parser;

fn main() -> anyhow::Result<()> {
    pd_router::run(pd_router::args::Args::parse())
}
