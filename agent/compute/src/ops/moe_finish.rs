//! What a mixture of experts adds to the residual stream.

use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;

/// `x += sums`, or `x += sums + sigmoid(gate) · shared` with a shared expert: after the sums of all
/// ranks are added, so that the order is that of one rank.
#[derive(Debug)]
pub struct MoeFinish<'a, B: DeviceTypes> {
    /// `[rows][hidden]`, of [`MoeExperts`](super::MoeExperts).
    pub sums: &'a B::Buffer,
    pub shared: Option<SharedRows<'a, B>>,
    /// `[rows][hidden]`, the residual stream.
    pub x: &'a B::Buffer,
    pub hidden: usize,
    pub rows: usize,
}

/// What the expert that every row goes through made.
#[derive(Debug)]
pub struct SharedRows<'a, B: DeviceTypes> {
    /// `[rows][hidden]`.
    pub values: &'a B::Buffer,
    /// `F32 [rows]`; `None`: a factor of 1.
    pub gate: Option<&'a B::Buffer>,
}

// === impl MoeFinish ===

impl<B: DeviceTypes> MoeFinish<'_, B> {
    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be.
    pub(crate) fn check(&self, activations: DType) {
        let Self {
            sums,
            shared,
            x,
            hidden,
            rows,
        } = self;
        let len = rows * hidden;
        sums.expect_elements("moe_finish sums", &[activations], len);
        x.expect_elements("moe_finish x", &[activations], len);
        x.expect_apart("moe_finish x", &[sums]);
        if let Some(SharedRows { values, gate }) = shared {
            values.expect_elements("moe_finish shared", &[activations], len);
            x.expect_apart("moe_finish x", &[values]);
            if let Some(gate) = gate {
                gate.expect_elements("moe_finish gate", &[DType::F32], *rows);
                x.expect_apart("moe_finish x", &[gate]);
            }
        }
    }
}
