//! Whole states between their slots and a host buffer.

use crate::buffer::DeviceBuffer;
use crate::cpu::handle::CpuBackend;
use crate::cpu::queue::Exec;
use crate::ops::{CopyDirection, CopyStates};

pub(in crate::cpu) fn copy_states(
    op: CopyStates<'_, CpuBackend>,
) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let CopyStates {
        states,
        slots,
        num_slots,
        host,
        direction,
    } = op;
    let item_len = states.item_len();
    let item_bytes = item_len * states.region.dtype().size_bytes();
    let all_slots = states.num_slots;
    let (region, host) = (states.region.dst_bytes(), host.dst_bytes());
    let slots = slots.src::<u32>("copy_states slots", num_slots);
    move |exec| {
        // SAFETY: on the queue; the slots' numbers are not written.
        let slots = unsafe { slots.slice() };
        exec.run_rows(num_slots, item_len, |range| {
            for i in range {
                let slot = slots[i] as usize;
                assert!(
                    slot < all_slots,
                    "state slot {slot} is beyond the {all_slots}"
                );
                // SAFETY: on the queue; the owner of the slots gives each once, and each place in
                // `host` belongs to one task.
                let (item, host) = unsafe {
                    let item = region.slice_mut(slot * item_bytes..(slot + 1) * item_bytes);
                    (item, host.slice_mut(i * item_bytes..(i + 1) * item_bytes))
                };
                match direction {
                    CopyDirection::PoolToHost => host.copy_from_slice(item),
                    CopyDirection::HostToPool => item.copy_from_slice(host),
                }
            }
        });
    }
}

#[cfg(test)]
mod tests;
