//! What the CUDA kernels take, as ptxas reports it, and whether a GPU here takes them.
//!
//! `make kernels`

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use pd_compute::cuda::driver::Driver;
use pd_compute::cuda::gpu::{GpuDriver, KERNEL_REPORT};

fn main() {
    print!("{KERNEL_REPORT}");
    match GpuDriver::open(0) {
        Ok(driver) => println!("loaded on {:?}", driver.device()),
        Err(error) => println!("no GPU here takes them: {error}"),
    }
}
