//! What a request costs a router: CPU time, rate and latency between mock workers, with the router
//! on core 0 and everything else on core 1. All routers run side by side and are measured in turn,
//! beside clients that ask the workers themselves; each number is the median over the rounds.
//! `cargo bench -p pd-router -- --help`. It is no test: a number from a busy machine says little.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement prints its table and ends at the first failure"
)]

mod load;
mod peers;
mod report;
mod target;
mod worker;

use clap::Parser;
use load::Load;
use report::{Report, Sample};
use std::path::PathBuf;
use std::time::Duration;
use target::Target;
use worker::Worker;

#[derive(Parser)]
struct Args {
    /// Each measurement's length.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only cases whose name contains this.
    #[arg(long, default_value = "")]
    case: String,
    /// A pd-router binary to measure; several are compared. Without any it is the one that was
    /// built with this benchmark, in which tokio has the features of tests.
    #[arg(long, value_name = "NAME=BINARY")]
    router: Vec<String>,
    /// A Python environment with other routers (bench/router/requirements.txt).
    #[arg(long, value_name = "VENV")]
    peers: Option<PathBuf>,
    /// Where all samples go, as JSON.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// What cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A kind of request, asked for by so many clients at once.
pub(crate) struct Case {
    name: &'static str,
    path: &'static str,
    stream: bool,
    clients: usize,
    prompt_bytes: usize,
}

const CHAT: &str = "/v1/chat/completions";

const CASES: [Case; 6] = [
    case("plain, 1 client", CHAT, false, 1, 512),
    case("plain, 64 clients", CHAT, false, 64, 512),
    case("plain, 32 KiB, 64 clients", CHAT, false, 64, 32 << 10),
    case("33 frames, 1 client", CHAT, true, 1, 512),
    case("33 frames, 64 clients", CHAT, true, 64, 512),
    case(
        "33 frames, /generate, 64 clients",
        "/generate",
        true,
        64,
        512,
    ),
];

const fn case(
    name: &'static str,
    path: &'static str,
    stream: bool,
    clients: usize,
    prompt_bytes: usize,
) -> Case {
    Case {
        name,
        path,
        stream,
        clients,
        prompt_bytes,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args = Args::parse();
    let cores_are_apart = pin_to_core_1();
    let workers = [
        Worker::start("prefill").await,
        Worker::start("prefill").await,
        Worker::start("decode").await,
        Worker::start("decode").await,
    ];
    let mut targets = vec![Target::workers(&workers)];
    let built = concat!("pd-router=", env!("CARGO_BIN_EXE_pd-router")).to_owned();
    let routers = if args.router.is_empty() {
        &vec![built]
    } else {
        &args.router
    };
    for named in routers {
        let (name, binary) = named.split_once('=').expect("--router NAME=BINARY");
        targets.push(Target::pd_router(name, binary, &workers).await);
    }
    if let Some(venv) = &args.peers {
        targets.extend(peers::start(venv, &workers).await);
    }
    let mut report = Report::new(cores_are_apart);
    for round in 0..args.rounds {
        for case in CASES.iter().filter(|case| case.name.contains(&args.case)) {
            for target in &targets {
                let sample = measure(target, case, args.seconds).await;
                report.add(case.name, &target.name, round, sample);
            }
        }
    }
    print!("{}", report.table());
    if let Some(out) = &args.out {
        std::fs::write(out, report.json()).unwrap();
    }
}

async fn measure(target: &Target, case: &Case, seconds: f64) -> Sample {
    let load = Load::new(&target.via, case);
    load.run(Duration::from_secs_f64(seconds / 8.0)).await;
    let cpu_before = target.cpu();
    let measured = load.run(Duration::from_secs_f64(seconds)).await;
    let cpu = target.cpu() - cpu_before;
    Sample::new(&measured, seconds, cpu, target.rss_mib())
}

/// Whether there is a core 1.
fn pin_to_core_1() -> bool {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(1);
    rustix::thread::sched_setaffinity(None, &cores).is_ok()
}
