//! `pd-simulation --seed N` runs one seed, `--seeds N` many; see `make simulate`.

use clap::Parser;
use std::process::ExitCode;
use std::time::Instant;

#[derive(Parser)]
struct Args {
    /// Run this seed alone.
    #[arg(long)]
    seed: Option<u64>,
    /// With `--seed`: print everything that happens, and the product's log.
    #[arg(long)]
    trace: bool,
    /// Run so many seeds.
    #[arg(long, default_value_t = 500)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Begin no further seed after so many that failed.
    #[arg(long, default_value_t = 20)]
    failures_max: usize,
    /// Processes at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

#[allow(clippy::print_stdout, reason = "a program prints its report")]
fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let Some(seed) = args.seed else {
        let began = Instant::now();
        let program = std::env::current_exe()?;
        let sweep = pd_simulation::sweep(
            &program,
            args.from..args.from + args.seeds,
            args.jobs,
            args.failures_max,
        )?;
        for (seed, line) in &sweep.failed {
            println!("{line}\n  again: make simulate SEED={seed}");
        }
        let (seeds, failed) = (sweep.seeds, sweep.failed.len());
        println!("{seeds} seeds, {failed} failed, {:.1?}", began.elapsed());
        return Ok(ExitCode::from(u8::from(failed > 0)));
    };
    if args.trace {
        tracing_subscriber::fmt()
            .with_env_filter("debug,hyper=info")
            .with_writer(std::io::stderr)
            .without_time()
            .init();
    }
    let report = pd_simulation::run(seed, args.trace);
    let what = report.broken.as_deref().unwrap_or("holds");
    let workers = if report.engines {
        "engines"
    } else {
        "stand-ins"
    };
    println!(
        "seed {seed}: {what}; {} of {} requests answered by {workers}, {} faults, {} events, hash {:016x}",
        report.answered, report.asked, report.faults, report.entries, report.hash
    );
    Ok(ExitCode::from(u8::from(report.broken.is_some())))
}
