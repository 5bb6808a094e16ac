//! Step sizes that suit the device, where no flag sets them.

use crate::args::ScheduleArgs;
use pd_engine::engine::Device;

/// Prompt tokens in one step on CPUs: about a second of work on two cores for a model of a billion
/// parameters, which is how long other requests may have to wait.
const CPU_CHUNK: u32 = 512;
/// Concurrent requests on CPUs: larger batches gain little there.
const CPU_RUNNING: u32 = 32;
/// Concurrent requests on a GPU: the largest decode step that is replayed as a graph by default.
const GPU_RUNNING: u32 = 256;
/// Prompt tokens in one step, by the GPU memory in GiB below which the size applies. Source: SGLang
/// 0.5.23, `memory_hook.py`.
const GPU_CHUNKS: [(usize, u32); 3] = [(20, 2048), (60, 4096), (160, 8192)];
const GPU_CHUNK_MAX: u32 = 16_384;

/// Limits of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// `None` computes prompts whole.
    pub(crate) chunked_prefill_size: Option<u32>,
    pub(crate) max_running_requests: u32,
}

// === impl Sizes ===

impl Sizes {
    pub(crate) fn new(args: &ScheduleArgs, device: &Device) -> Self {
        let (chunk, running) = match device {
            Device::Cpu { .. } => (CPU_CHUNK, CPU_RUNNING),
            Device::Cuda { driver, .. } => (gpu_chunk(driver.device().memory_bytes), GPU_RUNNING),
        };
        Self {
            chunked_prefill_size: match args.chunked_prefill_size {
                Some(given) => u32::try_from(given).ok(),
                None => Some(chunk),
            },
            max_running_requests: args.max_running_requests.unwrap_or(running),
        }
    }
}

fn gpu_chunk(memory_bytes: usize) -> u32 {
    let gib = memory_bytes >> 30;
    let fitting = GPU_CHUNKS.into_iter().find(|&(below, _)| gib < below);
    fitting.map_or(GPU_CHUNK_MAX, |(_, chunk)| chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_with_more_memory_takes_longer_chunks() {
        for (gib, chunk) in [
            (16, 2048),
            (24, 4096),
            (80, 8192),
            (141, 8192),
            (192, 16_384),
        ] {
            assert_eq!(gpu_chunk(gib << 30), chunk, "{gib} GiB");
        }
    }
}
