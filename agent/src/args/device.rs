//! Flags for the compute device.

use clap::{Args, ValueEnum};
use std::num::NonZeroUsize;

#[derive(Debug, Args)]
#[command(next_help_heading = "Device")]
pub(crate) struct DeviceArgs {
    /// Device that computes; `auto` uses a GPU if one is usable, and logs the reason if not
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    pub(crate) device: DeviceName,

    /// Index of the GPU among those that `CUDA_VISIBLE_DEVICES` leaves visible
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) base_gpu_id: u32,

    /// On a GPU, make tokens independent of batch-mates and chunking; costs speed. CPUs always do
    #[arg(long)]
    pub(crate) enable_deterministic_inference: bool,

    /// Wait for a step's tokens before launching the next; on a GPU the next is launched
    /// early
    #[arg(long)]
    pub(crate) disable_overlap_schedule: bool,

    /// On a GPU, launch every kernel of a decode step individually
    #[arg(long, alias = "disable-decode-cuda-graph")]
    pub(crate) disable_cuda_graph: bool,

    /// On a GPU, the largest batch whose decode steps are replayed as a graph
    #[arg(
        long,
        alias = "cuda-graph-max-bs-decode",
        default_value_t = 256,
        value_name = "REQUESTS"
    )]
    pub(crate) cuda_graph_max_bs: u32,

    /// Share of the memory for weights and KV pool: of the host's free memory, or of a GPU's total.
    /// If absent, 0.88 of a GPU's; on CPUs the pool takes a quarter of what the weights leave free,
    /// up to 16 GiB
    #[arg(long, value_name = "FRACTION")]
    pub(crate) mem_fraction_static: Option<f64>,

    /// Threads that compute on the CPU; one per core if absent
    #[arg(long, value_name = "N")]
    pub(crate) cpu_threads: Option<NonZeroUsize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DeviceName {
    Auto,
    Cpu,
    Cuda,
}
