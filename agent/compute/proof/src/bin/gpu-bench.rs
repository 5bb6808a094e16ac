//! Ops in the shapes of Qwen3 on a real GPU: a table, and JSON in the file that is named. `gpu-bench
//! [FILE]`; ends with 2 when there is no GPU.

#![allow(clippy::print_stdout, reason = "a program for a terminal")]

use pd_compute::DType;
use pd_compute::cuda::driver::Driver;
use pd_compute::cuda::gpu::GpuDriver;
use pd_compute::cuda::{CudaBackend, CudaConfig};
use pd_compute_proof::cases::Subject;
use pd_compute_proof::speed::{Measured, Plan, QWEN3, measure};
use serde_json::json;
use std::process::ExitCode;
use std::sync::Arc;

fn plan() -> Plan {
    Plan {
        models: QWEN3.to_vec(),
        rows: vec![1, 8, 16, 32, 64, 256, 2048, 8192],
        decodes: vec![(1024, 1), (8192, 1), (32_768, 1), (1024, 64), (8192, 16)],
        prompts: vec![2048, 8192, 32_768],
        repeats: 50,
        cold_bytes: 256 << 20,
    }
}

fn main() -> ExitCode {
    let driver = match GpuDriver::open(0) {
        Ok(driver) => Arc::new(driver),
        Err(error) => {
            println!("no GPU is usable: {error}");
            return ExitCode::from(2);
        }
    };
    let device = driver.device().clone();
    println!("{device:?}");
    let mut all = Vec::new();
    for deterministic in [false, true] {
        println!("deterministic: {deterministic}");
        let config = CudaConfig {
            dtype: DType::BF16,
            deterministic,
        };
        let backend = CudaBackend::start(driver.clone(), config);
        let subject = Subject {
            backend: backend.expect("a GPU has memory for a backend"),
        };
        let mut report = |line: &Measured| {
            println!(
                "{:48} {:10.1} us {:8.1} GB/s {:7.1} TFLOP/s",
                line.what, line.microseconds, line.gb_per_s, line.tflop_per_s
            );
        };
        let measured = measure(&subject, &plan(), &mut report);
        all.push(json!({"deterministic": deterministic, "measured": measured}));
    }
    let Some(path) = std::env::args_os().nth(1) else {
        return ExitCode::SUCCESS;
    };
    let result = json!({"device": device.name, "runs": all});
    match std::fs::write(&path, format!("{result:#}\n")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{}: {error}", path.display());
            ExitCode::FAILURE
        }
    }
}
