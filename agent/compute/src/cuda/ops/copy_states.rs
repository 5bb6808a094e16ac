//! Whole states between their slots and the host, in parts.

use crate::buffer::DeviceBuffer;
use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{CopyStatesArgs, Kernel, to_u32};
use crate::cuda::shared::Shared;
use crate::dtype::DType;
use crate::ops::{CopyDirection, CopyStates};

/// What a block copies: states take megabytes, and many blocks keep the bus busy.
const PART_BYTES: usize = 64 << 10;

pub(in crate::cuda) fn copy_states(
    shared: &Shared,
    op: &CopyStates<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let (states, dtype) = (op.states, op.states.region.dtype());
    assert!(
        op.host.is_pinned(),
        "copy_states: {:?} is not from alloc_host",
        op.host
    );
    let item_len = states.item_len();
    let item_bytes = item_len * dtype.size_bytes();
    let region_len = states.num_slots * item_len;
    let host_len = op.num_slots * item_len;
    let args = CopyStatesArgs {
        states: states.region.addr_of("state region", &[dtype], region_len),
        host: op.host.addr_of("copy_states host", &[dtype], host_len),
        slots: op
            .slots
            .addr_of("copy_states slots", &[DType::U32], op.num_slots),
        fault: shared.fault.addr(),
        item_bytes: item_bytes as u64,
        part_bytes: PART_BYTES as u64,
        num_slots: to_u32(states.num_slots),
        to_host: u32::from(op.direction == CopyDirection::PoolToHost),
    };
    let parts = item_bytes.div_ceil(PART_BYTES);
    let grid = [to_u32(op.num_slots), to_u32(parts), 1];
    shared.launch(Kernel::CopyStates, grid, 0, &args)
}
