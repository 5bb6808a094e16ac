//! Builds a backend on the configured device, and computes the memory that it leaves for the KV
//! pool.

use super::StartError;
use super::config::{Device, EngineConfig};
use super::sizes;
use crate::weights::Weights;
use pd_compute::ComputeError;
use pd_compute::cpu::{CpuBackend, CpuConfig};
use pd_compute::cuda::driver::Driver;
use pd_compute::cuda::{CudaBackend, CudaConfig};
use pd_compute::dtype::ComputeDtype;
use std::sync::Arc;

/// A backend, and its compute dtype.
pub(super) struct Numbers<B> {
    pub(super) backend: B,
    pub(super) dtype: ComputeDtype,
}

pub(super) fn cpu(
    config: &EngineConfig,
    threads: Option<usize>,
    weights: &Weights,
) -> Result<Numbers<CpuBackend>, StartError> {
    let dtype = sizes::compute_dtype(config.dtype, weights);
    let defaults = CpuConfig::default();
    let backend = CpuBackend::start(CpuConfig {
        threads: threads.unwrap_or(defaults.threads),
        compute_dtype: dtype,
        ..defaults
    })?;
    Ok(Numbers { backend, dtype })
}

/// bfloat16 unless the user says otherwise.
pub(super) fn cuda(
    config: &EngineConfig,
    driver: &Arc<dyn Driver>,
    deterministic: bool,
) -> Result<Numbers<CudaBackend>, StartError> {
    let dtype = config.dtype.unwrap_or(ComputeDtype::BF16);
    let cuda = CudaConfig {
        dtype: dtype.dtype(),
        deterministic,
    };
    let backend = CudaBackend::start(Arc::clone(driver), cuda)?;
    Ok(Numbers { backend, dtype })
}

/// Requests of the largest decode step that is replayed.
pub(super) fn graph_max_seqs(device: &Device) -> usize {
    match device {
        Device::Cpu { .. } => 0,
        Device::Cuda {
            cuda_graph_max_bs, ..
        } => *cuda_graph_max_bs as usize,
    }
}

/// Memory available to the KV pool once weights and activations are allocated.
///
/// # Errors
/// When they leave nothing of the share.
pub(super) fn kv_memory_bytes(device: &Device) -> Result<u64, StartError> {
    let (driver, fraction) = match device {
        Device::Cpu {
            kv_memory_bytes, ..
        } => return Ok(*kv_memory_bytes),
        Device::Cuda {
            driver,
            mem_fraction_static,
            ..
        } => (driver, *mem_fraction_static),
    };
    let free = driver.free_bytes().map_err(|error| {
        StartError::Device(ComputeError::DeviceFault {
            op: "free memory",
            message: error.to_string(),
        })
    })?;
    let total = driver.device().memory_bytes;
    let used = total - free.min(total);
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of memory may be rounded"
    )]
    let share = (total as f64 * fraction) as usize;
    let kv = share.saturating_sub(used);
    tracing::info!(
        "device memory: {share} bytes are {fraction} of {total}; {used} are in use by weights, activations \
         and others; {kv} are left for the KV pool"
    );
    if kv == 0 {
        return Err(StartError::Config {
            flag: "--mem-fraction-static",
            value: fraction.to_string(),
            problem: format!(
                "of {total} bytes that is {share}, and {used} are in use once the weights are loaded; raise it, \
                 or take a smaller model"
            ),
        });
    }
    Ok(kv as u64)
}
