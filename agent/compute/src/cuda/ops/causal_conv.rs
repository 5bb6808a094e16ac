//! Short convolution: a thread makes a channel of a chunk of a sequence's rows.

use super::state_args;
use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{
    CONV_TENSORS, CONV_THREADS, CausalConvArgs, ConvTensor, Kernel, to_u32,
};
use crate::cuda::shared::Shared;
use crate::dtype::DType;
use crate::ops::CausalConv;

/// Rows that a thread makes one after another, where sequences have many.
const CHUNK: usize = 32;

pub(in crate::cuda) fn causal_conv(
    shared: &Shared,
    op: &CausalConv<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let dtype = shared.config.dtype;
    let (rows, seqs, channels) = (op.batch.num_tokens, op.batch.num_seqs, op.channels());
    // Where most have few rows, a block has all of a sequence and need not look for it.
    let are_whole = rows <= 2 * seqs;
    let chunk = if are_whole { rows } else { CHUNK.max(op.taps) };
    // Numbers of chunks are as many at most.
    let blocks = if are_whole { seqs } else { rows / chunk + seqs };
    if rows == 0 {
        return Ok(());
    }
    let args = CausalConvArgs {
        x: op
            .x
            .values
            .addr_of("conv x", &[dtype], op.x.len(rows, channels)),
        weight: op
            .weight
            .addr_of("conv weight", &[DType::F32], op.taps * channels),
        out: op.out.addr_of("conv out", &[dtype], rows * channels),
        fault: shared.fault.addr(),
        states: state_args(op.states, op.state_rows, op.batch, dtype),
        x_row_stride: op.x.row_stride as u64,
        tensors: tensors(op),
        channels: to_u32(channels),
        taps: to_u32(op.taps),
        chunk: to_u32(chunk),
        num_seqs: if are_whole { 0 } else { to_u32(seqs) },
    };
    let kernel = if dtype == DType::F32 {
        Kernel::CausalConvF32
    } else {
        Kernel::CausalConvBf16
    };
    let grid = [to_u32(channels.div_ceil(CONV_THREADS)), to_u32(blocks), 1];
    let before = (op.taps - 1) * CONV_THREADS;
    shared.launch(kernel, grid, 4 * before, &args)
}

/// Where the heads of each tensor lie, and which channels they have; tensors that are not there have none.
///
/// # Panics
/// When there are more than kernels take.
fn tensors(op: &CausalConv<'_, CudaBackend>) -> [ConvTensor; CONV_TENSORS] {
    let (states, kept) = (op.states, op.taps - 1);
    let count = states.tensors.len();
    assert!(
        count <= CONV_TENSORS,
        "conv states of {count} tensors; kernels take {CONV_TENSORS}"
    );
    let mut all = [ConvTensor {
        first: 0,
        head_stride: 0,
        first_channel: u32::MAX,
        head_channels: 1,
    }; CONV_TENSORS];
    let (mut first, mut first_channel) = (0, 0);
    for (place, tensor) in all.iter_mut().zip(states.tensors.iter()) {
        let head_stride = states.num_layers * tensor.elements;
        let head_channels = tensor.elements / kept;
        *place = ConvTensor {
            first: (first + op.layer * tensor.elements) as u64,
            head_stride: head_stride as u64,
            first_channel: to_u32(first_channel),
            head_channels: to_u32(head_channels),
        };
        first += tensor.heads * head_stride;
        first_channel += tensor.heads * head_channels;
    }
    all
}
