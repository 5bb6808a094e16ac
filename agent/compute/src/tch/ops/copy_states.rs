//! Whole states between their slots and the host.

use crate::ops::{CopyDirection, CopyStates};
use crate::tch::handle::TchBackend;
use crate::tch::memory::index_tensor;

pub(in crate::tch) fn copy_states(op: CopyStates<'_, TchBackend>) -> Result<(), String> {
    let CopyStates {
        states,
        slots,
        num_slots,
        host,
        direction,
    } = op;
    let item_len = states.item_len();
    let slots = slots.words("slots", num_slots)?;
    let device = states.region.device();
    let slots = index_tensor(&slots, "state slot", "the region", states.num_slots, device)?;
    let mut region = states.region.view("region", [states.num_slots, item_len]);
    let mut host = host.view("host", [num_slots, item_len]);
    match direction {
        CopyDirection::PoolToHost => host.copy_(&region.index_select(0, &slots)),
        CopyDirection::HostToPool => {
            let _ = region.index_copy_(0, &slots, &host.to_device(device));
        }
    }
    Ok(())
}
