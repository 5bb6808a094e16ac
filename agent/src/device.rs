//! Opens the compute device, and logs which one and why.

use crate::args::{DeviceArgs, DeviceName};
use crate::memory::kv_memory_bytes;
use anyhow::{Context, Result};
use pd_compute::cuda::driver::Driver;
use pd_engine::engine::Device;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

/// Share of a GPU's memory without `--mem-fraction-static`.
const GPU_FRACTION_DEFAULT: f64 = 0.88;
/// NVIDIA's container runtime lists a container's GPUs here; `void` and `none` mean no GPU.
const GIVEN_GPUS: &str = "NVIDIA_VISIBLE_DEVICES";

/// # Errors
/// When the requested GPU cannot be used, or no memory is left for the KV pool.
pub(crate) fn open(device: &DeviceArgs, model_path: &Path) -> Result<Device> {
    let gpu = match device.device {
        DeviceName::Cpu => None,
        DeviceName::Cuda => Some(open_gpu(device).context("--device cuda")?),
        DeviceName::Auto => open_gpu(device).inspect_err(say_why_cpu).ok(),
    };
    if let Some(driver) = gpu {
        let info = driver.device();
        tracing::info!(
            "using device {} ({} multiprocessors, {:.1} GB)",
            info.name,
            info.num_sms,
            gigabytes(info.memory_bytes)
        );
        return Ok(Device::Cuda {
            driver,
            mem_fraction_static: device.mem_fraction_static.unwrap_or(GPU_FRACTION_DEFAULT),
            deterministic: device.enable_deterministic_inference,
            cuda_graph_max_bs: if device.disable_cuda_graph {
                0
            } else {
                device.cuda_graph_max_bs
            },
        });
    }
    Ok(Device::Cpu {
        threads: device.cpu_threads.map(NonZeroUsize::get),
        kv_memory_bytes: kv_memory_bytes(model_path, device.mem_fraction_static)?,
    })
}

/// A process that was given a GPU is expected to use it.
fn say_why_cpu(why: &anyhow::Error) {
    match std::env::var(GIVEN_GPUS) {
        Ok(given) if !matches!(given.as_str(), "" | "void" | "none") => tracing::warn!(
            "using device cpu although this container was given a GPU ({GIVEN_GPUS}={given}): {why:#}; \
             set --device cuda to fail instead, or --device cpu to silence this"
        ),
        _ => tracing::info!("using device cpu: {why:#}"),
    }
}

#[cfg(feature = "cuda")]
fn open_gpu(args: &DeviceArgs) -> Result<Arc<dyn Driver>> {
    let driver = pd_compute::cuda::gpu::GpuDriver::open(args.base_gpu_id);
    Ok(Arc::new(driver.context("no GPU is usable")?))
}

#[cfg(not(feature = "cuda"))]
fn open_gpu(_args: &DeviceArgs) -> Result<Arc<dyn Driver>> {
    anyhow::bail!("this pd-agent was built without CUDA kernels (cargo feature `cuda`)")
}

#[allow(clippy::cast_precision_loss, reason = "shown to users only")]
fn gigabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e9
}
