//! What a mixture of experts adds to the residual stream.

use crate::ops::{MoeFinish, SharedRows};
use crate::tch::handle::TchBackend;

pub(in crate::tch) fn moe_finish(op: MoeFinish<'_, TchBackend>) -> Result<(), String> {
    let MoeFinish {
        sums,
        shared,
        x,
        hidden,
        rows,
    } = op;
    // Not in place: the tensors may share the buffers' memory.
    let sums = sums.floats("moe_finish sums", [rows, hidden]);
    let added = match shared {
        None => sums,
        Some(SharedRows { values, gate }) => {
            let values = values.floats("moe_finish shared", [rows, hidden]);
            match gate {
                Some(gate) => sums + values * gate.view("moe_finish gate", [rows, 1]).sigmoid(),
                None => sums + values,
            }
        }
    };
    let sum = x.floats("moe_finish x", [rows, hidden]) + added;
    x.store("moe_finish x", &sum);
    Ok(())
}
