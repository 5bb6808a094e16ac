//! RMS norm, with the residual addition before it.

use crate::buffer::DeviceBuffer;
use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{Kernel, RmsNormArgs, to_u32};
use crate::cuda::memory::CudaBuffer;
use crate::cuda::shared::Shared;
use crate::dtype::DType;
use crate::ops::{RmsNorm, WriteMode};

/// Rows are kept in shared memory, which is this large at least.
const HIDDEN_MAX: usize = 12_000;

pub(in crate::cuda) fn rms_norm(
    shared: &Shared,
    op: &RmsNorm<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let dtype = shared.config.dtype;
    let hidden = op.weight.len();
    assert!(
        hidden <= HIDDEN_MAX,
        "rms_norm: rows of {hidden} exceed {HIDDEN_MAX}"
    );
    let len = op.rows * hidden;
    let args = RmsNormArgs {
        x: op.x.addr_of("rms_norm x", &[dtype], len),
        add: op
            .add
            .map_or(0, |add| add.addr_of("rms_norm add", &[dtype], len)),
        weight: weight_addr(op.weight),
        out: op.out.addr_of("rms_norm out", &[dtype], len),
        hidden: to_u32(hidden),
        eps: op.eps,
        adds: u32::from(op.into == WriteMode::Add),
        pad: 0,
    };
    let kernel = if dtype == DType::F32 {
        Kernel::RmsNormF32
    } else {
        Kernel::RmsNormBf16
    };
    // A float per warp, and the row.
    let warps = kernel.threads() as usize / 32;
    shared.launch(kernel, [to_u32(op.rows), 1, 1], 4 * (warps + hidden), &args)
}

/// # Panics
/// When kernels cannot load it by 16 bytes.
pub(super) fn weight_addr(weight: &CudaBuffer) -> u64 {
    let addr = weight.addr_of("rms_norm weight", &[DType::F32], weight.len());
    assert!(
        addr.is_multiple_of(16),
        "rms_norm: {weight:?} begins at no multiple of 16 bytes"
    );
    addr
}
