//! `gpu-agents [PART]…`: agents on a GPU beside agents on CPUs, pairs on one GPU, and all that must leave
//! every bit as it is. `--device cpu` tries the program itself. Prints a line per check and a table; ends
//! with 1 when a check fails, with 2 when no GPU is usable.
//!
//! Parts that the results' file has as ok, of this build, are not run again: a run can be cut and gone
//! on with.

#![allow(clippy::print_stdout, reason = "a program for a terminal")]

mod answers;
mod checks;
mod deterministic;
mod golden;
mod graphs;
mod load;
mod memory;
mod ops;
mod pair;
mod part;
mod program;
mod results;
mod sanitizer;
mod site;

use anyhow::{Context, Result};
use checks::{Checks, Verdict};
use clap::{Parser, ValueEnum};
use part::Part;
use results::{PartResult, Results};
use site::{Device, Site, Start};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// A part ends within this, even if something hangs.
const PART_LIMIT: Duration = Duration::from_secs(9 * 60);
const NO_GPU: u8 = 2;

#[derive(Parser)]
struct Args {
    /// What to run, in this order; all if none is named
    parts: Vec<Part>,
    /// What the agents compute on
    #[arg(long, value_enum, default_value_t = Device::Cuda)]
    device: Device,
    /// Folder of the tiny models; `models` beside this program if absent
    #[arg(long)]
    models: Option<PathBuf>,
    /// Where the results are kept, and their table beside it
    #[arg(long, default_value = "gpu-agents.json")]
    results: PathBuf,
    /// Run also what the results have as ok
    #[arg(long)]
    again: bool,
    /// Length of the load, warm-up included
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..=400))]
    seconds: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(code) => code,
        Err(why) => {
            println!("error: {why:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<ExitCode> {
    let site = Site::new(args.device, args.models)?;
    let mut results = Results::open(&args.results, &Site::build()?)?;
    let device = match site.start().await? {
        Start::Serves { device } => device,
        Start::NoGpu { why } => {
            println!("{why}");
            return Ok(ExitCode::from(NO_GPU));
        }
    };
    println!("{device}");
    results.device = device;
    let parts = match args.parts.as_slice() {
        [] => Part::value_variants(),
        some => some,
    };
    for &part in parts {
        let ran_as = part.ran_as(args.device, args.seconds);
        if !args.again && results.has_ok(part.name(), &ran_as) {
            println!("\n── {}: ok before", part.name());
            continue;
        }
        println!("\n── {}", part.name());
        results.enter(run_part(part, &site, args.seconds, ran_as).await);
        results
            .write(&args.results)
            .with_context(|| format!("write {}", args.results.display()))?;
    }
    println!("\n{}", results.table());
    let failed = results.verdict() == Verdict::Failed;
    Ok(ExitCode::from(u8::from(failed)))
}

/// What hangs, and what ends before its last check, is a failed check.
async fn run_part(part: Part, site: &Site, load_seconds: u64, ran_as: String) -> PartResult {
    let started = Instant::now();
    let mut checks = Checks::default();
    let ended = timeout(PART_LIMIT, part.run(site, &mut checks, load_seconds)).await;
    let ended = ended.unwrap_or_else(|_| Err(anyhow::anyhow!("still runs after {PART_LIMIT:?}")));
    if let Err(why) = ended {
        checks.failed(part.name(), &why);
    }
    PartResult {
        name: part.name(),
        ran_as,
        verdict: checks.verdict(),
        seconds: started.elapsed().as_secs_f64(),
        checks: checks.done(),
    }
}
