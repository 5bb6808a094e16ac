//! Whole states between their slots and the host.

use super::copy_pages::CopyDirection;
use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;
use crate::states::StateView;

/// Copies whole states between a region and a host buffer laid out as the region, for retraction.
#[derive(Debug)]
pub struct CopyStates<'a, B: DeviceTypes> {
    pub states: &'a StateView<B>,
    /// `U32 [num_slots]`, distinct.
    pub slots: &'a B::Buffer,
    pub num_slots: usize,
    /// Of the region's dtype.
    pub host: &'a B::Buffer,
    pub direction: CopyDirection,
}

// === impl CopyStates ===

impl<B: DeviceTypes> CopyStates<'_, B> {
    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be.
    pub(crate) fn check(&self) {
        let Self {
            states,
            slots,
            num_slots,
            host,
            direction: _,
        } = *self;
        let (item, dtypes) = (states.item_len(), [states.region.dtype()]);
        slots.expect_elements("copy_states slots", &[DType::U32], num_slots);
        host.expect_elements("copy_states host", &dtypes, num_slots * item);
        let len = states.num_slots * item;
        states.region.expect_elements("state region", &dtypes, len);
        host.expect_apart("copy_states host", &[&states.region]);
    }
}
