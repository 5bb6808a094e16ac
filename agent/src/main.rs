//! Node agent: one process that serves one model over HTTP, unified or as prefill or decode; or
//! that benchmarks the KV transfer path between two nodes, or computes recorded requests again.

mod args;
mod delivery;
mod device;
mod drain;
mod gpu;
mod http;
mod hub_model;
mod kv_probe;
mod listeners;
mod lost_threads;
mod memory;
mod observations;
mod peers;
mod replay;
mod service;
mod sizes;
mod weights;
mod wiring;

use std::process::ExitCode;

#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: pd_allocator::Allocator = pd_allocator::Allocator;

fn main() -> ExitCode {
    if let Some(args) = args::after_word::<replay::ReplayArgs>("replay") {
        let code = replay::run(&args);
        pd_log::flush();
        return code;
    }
    let ended = match args::after_word::<kv_probe::KvProbeArgs>("kv-probe") {
        Some(args) => kv_probe::run(&args),
        None => wiring::run(args::Args::from_command_line()),
    };
    let code = match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            tracing::error!("{why:#}");
            ExitCode::FAILURE
        }
    };
    pd_log::flush();
    code
}
