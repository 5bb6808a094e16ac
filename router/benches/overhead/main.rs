//! What a request costs the router: CPU time, rate and latency beside mock workers, with the
//! router on core 0 and everything else on core 1. `cargo bench -p pd-router [SECONDS]`.
//! It is no test: a number from a busy machine says little.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement prints its table and ends at the first failure"
)]

mod load;
mod router;
mod worker;

use load::{Load, Measured};
use router::RouterProcess;
use std::time::Duration;
use worker::Worker;

/// One row of the table.
struct Case {
    name: &'static str,
    stream: bool,
    clients: usize,
    prompt_bytes: usize,
}

const CASES: [Case; 5] = [
    case("plain, 64 clients", false, 64, 512),
    case("plain, 1 client", false, 1, 512),
    case("33 frames, 64 clients", true, 64, 512),
    case("33 frames, 1 client", true, 1, 512),
    case("plain, 32 KiB prompt, 64 clients", false, 64, 32 << 10),
];

const fn case(name: &'static str, stream: bool, clients: usize, prompt_bytes: usize) -> Case {
    Case {
        name,
        stream,
        clients,
        prompt_bytes,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let seconds = std::env::args().find_map(|arg| arg.parse().ok());
    let duration = Duration::from_secs(seconds.unwrap_or(4));
    pin_to_core_1();
    let workers = [
        Worker::start("prefill").await,
        Worker::start("prefill").await,
        Worker::start("decode").await,
        Worker::start("decode").await,
    ];
    let router = RouterProcess::start(&workers).await;
    println!(
        "| case | requests/s | p50 µs | p99 µs | first byte p50 µs | router CPU µs/request | RSS MiB |"
    );
    println!("|---|---|---|---|---|---|---|");
    for case in CASES {
        let load = Load {
            addr: router.addr,
            stream: case.stream,
            clients: case.clients,
            prompt_bytes: case.prompt_bytes,
        };
        load.run(Duration::from_millis(500)).await;
        let cpu_before = router.cpu();
        let measured = load.run(duration).await;
        let cpu = router.cpu() - cpu_before;
        print_row(case.name, &measured, duration, cpu, router.rss_mib());
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
fn print_row(name: &str, measured: &Measured, wall: Duration, cpu: Duration, rss_mib: u64) {
    let requests = measured.total_us.len() as f64;
    println!(
        "| {name} | {:.0} | {} | {} | {} | {:.1} | {rss_mib} |",
        requests / wall.as_secs_f64(),
        load::quantile(&measured.total_us, 0.5),
        load::quantile(&measured.total_us, 0.99),
        load::quantile(&measured.first_us, 0.5),
        cpu.as_secs_f64() * 1e6 / requests,
    );
}

fn pin_to_core_1() {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(1);
    if rustix::thread::sched_setaffinity(None, &cores).is_err() {
        println!("there is no core 1: router, workers and clients share one core");
    }
}
