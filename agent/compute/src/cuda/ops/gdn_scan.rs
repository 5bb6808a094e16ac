//! The gated delta rule, one token after another at every step: a token's bits do not depend on where a step begins.

use super::state_args;
use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{DELTA_SCAN_COLUMNS, DELTA_SCAN_STAGE, GdnScanArgs, Kernel, to_u32};
use crate::cuda::shared::Shared;
use crate::dtype::DType;
use crate::ops::{GdnScan, GdnShape, Strided};

pub(in crate::cuda) fn gdn_scan(
    shared: &Shared,
    op: &GdnScan<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let (dtype, floats) = (shared.config.dtype, [DType::F32]);
    let shape = op.shape();
    let GdnShape {
        num_k_heads,
        num_v_heads,
        k_dim,
        v_dim,
    } = shape;
    let rows = op.batch.num_tokens;
    let gate = |gate: Strided<'_, CudaBackend>, what| {
        let len = gate.len(rows, num_v_heads);
        gate.values.addr_of(what, &[dtype], len)
    };
    let elements = k_dim * v_dim;
    #[allow(clippy::cast_precision_loss, reason = "head sizes are below 2^24")]
    let q_scale = 1.0 / (k_dim as f32).sqrt();
    let args = GdnScanArgs {
        qkv: op
            .qkv
            .addr_of("delta qkv", &[dtype], rows * shape.qkv_width()),
        a: gate(op.a, "delta a"),
        b: gate(op.b, "delta b"),
        decay: op.decay.addr_of("delta decay", &floats, num_v_heads),
        dt_bias: op.dt_bias.addr_of("delta dt_bias", &floats, num_v_heads),
        out: op
            .out
            .addr_of("delta out", &[dtype], rows * shape.v_width()),
        fault: shared.fault.addr(),
        states: state_args(op.states, op.state_rows, op.batch, DType::F32),
        first: (op.layer * elements) as u64,
        head_stride: (op.states.num_layers * elements) as u64,
        a_row_stride: op.a.row_stride as u64,
        b_row_stride: op.b.row_stride as u64,
        num_k_heads: to_u32(num_k_heads),
        num_v_heads: to_u32(num_v_heads),
        k_dim: to_u32(k_dim),
        v_dim: to_u32(v_dim),
        q_scale,
        pad: 0,
    };
    let (kernel, k_max, columns) = kernel_of(dtype, k_dim);
    let warps = kernel.threads() as usize / 32;
    let grid = [
        to_u32(v_dim.div_ceil(warps * columns)),
        to_u32(num_v_heads),
        to_u32(op.batch.num_seqs),
    ];
    // k, q, the block's columns and four more of each token of two stages.
    let words = 2 * DELTA_SCAN_STAGE * (2 * k_max + warps * columns + 4);
    shared.launch(kernel, grid, 4 * words, &args)
}

/// The kernel, the longest k head that it takes, and the columns that a warp has.
///
/// # Panics
/// When none takes them: [`OpFeature::LongDeltaKeys`](crate::ops::OpFeature::LongDeltaKeys).
fn kernel_of(dtype: DType, k_dim: usize) -> (Kernel, usize, usize) {
    const COLUMNS: usize = DELTA_SCAN_COLUMNS;
    let (bf16, f32, k_max, columns) = match k_dim {
        ..=32 => (Kernel::GdnScan32Bf16, Kernel::GdnScan32F32, 32, COLUMNS),
        33..=128 => (Kernel::GdnScan128Bf16, Kernel::GdnScan128F32, 128, COLUMNS),
        129..=256 => (
            Kernel::GdnScan256Bf16,
            Kernel::GdnScan256F32,
            256,
            COLUMNS / 2,
        ),
        _ => panic!("gated delta kernels take k heads of up to 256 elements, not {k_dim}"),
    };
    (if dtype == DType::F32 { f32 } else { bf16 }, k_max, columns)
}
