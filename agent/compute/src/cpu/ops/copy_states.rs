//! Whole states between their slots and a host buffer.

use super::copied::{Copied, expect_distinct};
use crate::buffer::DeviceBuffer;
use crate::cpu::handle::CpuBackend;
use crate::cpu::queue::Exec;
use crate::ops::CopyStates;

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
    let copied = Copied::new(&states.region, host, direction);
    let slots = slots.src::<u32>("copy_states slots", num_slots);
    move |exec| {
        // SAFETY: on the queue; the slots' numbers are not written.
        let slots = unsafe { slots.slice() };
        expect_distinct("state slot", slots, direction);
        exec.run_rows(num_slots, item_len, |range| {
            for i in range {
                let slot = slots[i] as usize;
                assert!(
                    slot < all_slots,
                    "state slot {slot} is beyond the {all_slots}"
                );
                let bytes = |item: usize| item * item_bytes..(item + 1) * item_bytes;
                // SAFETY: on the queue; slots that are written are distinct, and each place in `host` belongs to one
                // task.
                unsafe { copied.copy(bytes(slot), bytes(i)) };
            }
        });
    }
}

#[cfg(test)]
mod tests;
