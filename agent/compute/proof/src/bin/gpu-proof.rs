//! The suite on a real GPU: `gpu-proof [NAME]…`, all checks without names. Prints a line per check and
//! ends with 1 when one fails, with 2 when there is no GPU.

#![allow(clippy::print_stdout, reason = "a program for a terminal")]

use pd_compute::DType;
use pd_compute::cuda::driver::Driver;
use pd_compute::cuda::gpu::GpuDriver;
use pd_compute::cuda::{CudaBackend, CudaConfig};
use pd_compute_proof::cases::Subject;
use pd_compute_proof::suite::{Device, checks};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

struct Gpu {
    driver: Arc<GpuDriver>,
}

impl Device for Gpu {
    type Backend = CudaBackend;

    fn start(&self, dtype: DType, deterministic: bool) -> Subject<CudaBackend> {
        let config = CudaConfig {
            dtype,
            deterministic,
        };
        let backend = CudaBackend::start(self.driver.clone(), config);
        Subject {
            backend: backend.expect("a GPU has memory for a backend"),
        }
    }
}

fn main() -> ExitCode {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let gpu = match GpuDriver::open(0) {
        Ok(driver) => Gpu {
            driver: Arc::new(driver),
        },
        Err(error) => {
            println!("no GPU is usable: {error}");
            return ExitCode::from(2);
        }
    };
    println!("{:?}", gpu.driver.device());
    let mut failed = 0;
    for check in checks::<Gpu>() {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == check.name) {
            continue;
        }
        let started = Instant::now();
        let passed = catch_unwind(AssertUnwindSafe(|| (check.run)(&gpu))).is_ok();
        failed += u8::from(!passed);
        let verdict = if passed { "ok" } else { "FAILED" };
        let seconds = started.elapsed().as_secs_f64();
        println!("{verdict:6} {seconds:7.2} s  {}", check.name);
    }
    println!("{failed} failed");
    ExitCode::from(u8::from(failed > 0))
}
