//! What a stream has still to do.

use pd_compute::cuda::driver::{Gemm, Launch, Work};
use pd_compute::cuda::kernels::Kernel;

#[derive(Clone, Debug)]
pub(super) enum Command {
    Copy {
        to: u64,
        from: u64,
        bytes: usize,
    },
    Launch {
        kernel: Kernel,
        grid: [u32; 3],
        shared_bytes: usize,
        args: Vec<u8>,
    },
    Gemm(Gemm),
    Event(u64),
}

// === impl Command ===

impl Command {
    pub(super) fn of(work: &Work<'_>) -> Self {
        match *work {
            Work::Gemm(gemm) => Self::Gemm(gemm),
            Work::Launch(Launch {
                kernel,
                grid,
                shared_bytes,
                args,
            }) => {
                // What a device takes: CUDA's grid, and shared memory of compute capability 8.6, or 9.0 where it is meant.
                let is_for_hopper = matches!(
                    kernel,
                    Kernel::AttendHopper64
                        | Kernel::AttendHopper128
                        | Kernel::LinearHopperBf16
                        | Kernel::LinearHopperF32
                        | Kernel::ExpertHopperBf16
                        | Kernel::AttendLatentTile16
                        | Kernel::AttendLatentTile64
                );
                let most = if is_for_hopper { 227 } else { 99 };
                assert!(
                    grid[1..].iter().all(|&blocks| blocks <= 65_535) && shared_bytes <= most << 10,
                    "{kernel:?} is launched with a grid of {grid:?} and {shared_bytes} bytes"
                );
                Self::Launch {
                    kernel,
                    grid,
                    shared_bytes: shared_bytes as usize,
                    args: args.to_vec(),
                }
            }
        }
    }
}
