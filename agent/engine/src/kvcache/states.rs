//! `StatePool`: the memory of recurrent states, as ops see it and as a transfer describes it. Layout of a region:
//! `[slot][tensor][head][layer][elements]`, so that a slot is one contiguous write, and so is any range of heads.

use super::device::map_region;
use super::group::ExportError;
use crate::model::StateSpec;
use pd_compute::{Backend, ComputeError, DType, Reach, StateView};
use pd_kv_transfer::Region;
use pd_protocol::layout::{StateLayout, StateTensor, StateType};

#[derive(Debug)]
pub(crate) struct StatePool<B: Backend> {
    specs: Vec<StateSpec>,
    num_slots: usize,
    activations: DType,
    /// One per state of the model's spec, in its order.
    views: Vec<StateView<B>>,
}

// === impl StatePool ===

impl<B: Backend> StatePool<B> {
    /// # Errors
    /// When the device lacks memory for the slots.
    pub(crate) fn alloc(
        backend: &B,
        specs: Vec<StateSpec>,
        num_slots: usize,
        reach: Reach,
    ) -> Result<Self, ComputeError> {
        let activations = backend.activation_dtype();
        let mut views = Vec::with_capacity(specs.len());
        for spec in &specs {
            let (dtype, len) = (spec.dtype.of(activations), num_slots * spec.item_elements());
            let region = backend.alloc_exportable(spec.name, dtype, len, reach)?;
            views.push(spec.view::<B>(region, num_slots));
        }
        Ok(Self {
            specs,
            num_slots,
            activations,
            views,
        })
    }

    pub(crate) fn views(&self) -> &[StateView<B>] {
        &self.views
    }

    /// The states as peers see them; one tensor-parallel rank holds every head.
    pub(crate) fn describe(&self) -> Vec<StateLayout> {
        let describe = |spec: &StateSpec| StateLayout {
            name: spec.name.to_owned(),
            state_type: StateType::Mamba,
            slots: to_u32(self.num_slots),
            tensors: spec
                .tensors
                .iter()
                .map(|tensor| StateTensor {
                    name: tensor.name.to_owned(),
                    total_dim: to_u32(tensor.dim),
                    dim_start: 0,
                    dim: to_u32(tensor.dim),
                    first_layer: 0,
                    layers: to_u32(spec.layers.len()),
                    layer_bytes: (tensor.elements * spec.dtype.of(self.activations).size_bytes())
                        as u64,
                })
                .collect(),
        };
        self.specs.iter().map(describe).collect()
    }

    /// Every state's memory for a transfer, in the order of [`Self::describe`].
    ///
    /// # Errors
    /// When the memory cannot be exported or mapped.
    pub(crate) fn regions(&self, backend: &B) -> Result<Vec<Region>, ExportError> {
        let regions = self.views.iter();
        regions
            .map(|view| map_region(backend, &view.region))
            .collect()
    }
}

fn to_u32(len: usize) -> u32 {
    u32::try_from(len).expect("slots, layers, heads and dimensions are checked to be small")
}
