//! `KvGroups`: the pool's memory, as ops see it and as a transfer describes it. Layout of a cut:
//! `[page][kv_head][layer in cut][tensor][slot][head_dim]`, so that a page is one contiguous write,
//! and so is any range of heads.

use super::device::map_region;
use super::spaces::PerSpace;
use super::states::StatePool;
use crate::model::{KvGroupSpec, KvPoolSpec};
use pd_compute::{Backend, ComputeError, DType, KvCutView, KvGroupView, Reach, StateView};
use pd_kv_transfer::{Region, RegionError};
use pd_protocol::layout::{KvCut, KvDtype, KvGroup, StateLayout, StateTensor, StateType};

#[derive(Debug)]
pub(crate) struct KvGroups<B: Backend> {
    spec: KvPoolSpec,
    shape: KvPoolShape,
    /// One per group of the model's spec, in its order.
    views: Vec<KvGroupView<B>>,
    states: StatePool<B>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KvPoolShape {
    /// Of the full space.
    pub(crate) num_pages: usize,
    /// Of the window space; 0 for a model without.
    pub(crate) num_window_pages: usize,
    pub(crate) page_size: usize,
    pub(crate) dtype: DType,
    /// Of recurrent states; 0 for a model without.
    pub(crate) num_slots: usize,
}

/// A rank's memory as a transfer sees it.
#[derive(Debug)]
pub(crate) struct RankMemory {
    pub(crate) num_pages: usize,
    pub(crate) groups: Vec<KvGroup>,
    /// Every cut's memory, in the order of `groups`.
    pub(crate) regions: Vec<Region>,
    pub(crate) states: Vec<StateLayout>,
    /// Each state's memory.
    pub(crate) state_regions: Vec<Region>,
    /// Of hidden states in metadata rows.
    pub(crate) activations: KvDtype,
}

/// Why the pool's memory cannot be exposed to a transfer.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Compute(#[from] ComputeError),
    #[error(transparent)]
    Region(#[from] RegionError),
    #[error(
        "a KV pool of {0:?} cannot be transferred; choose float32, float16, bfloat16 or fp8_e4m3"
    )]
    Dtype(DType),
}

// === impl KvPoolShape ===

impl KvPoolShape {
    /// Bytes that one token takes in all groups of each space.
    pub(crate) fn bytes_per_token(spec: &KvPoolSpec, dtype: DType) -> PerSpace {
        let bytes = |group: &KvGroupSpec| {
            let bytes = group.elements_per_token() * dtype.size_bytes();
            match group.window {
                None => PerSpace {
                    full: bytes,
                    window: 0,
                },
                Some(_) => PerSpace {
                    full: 0,
                    window: bytes,
                },
            }
        };
        spec.groups.iter().map(bytes).sum()
    }

    /// Pages of a group's memory.
    fn pages_of(&self, group: &KvGroupSpec) -> usize {
        match group.window {
            None => self.num_pages,
            Some(_) => self.num_window_pages,
        }
    }

    /// Bytes of a slot of recurrent state, in all layers; 0 for a model without.
    pub(crate) fn bytes_per_slot(spec: &KvPoolSpec, activations: DType) -> usize {
        let states = spec.states.iter();
        states.map(|state| state.item_bytes(activations)).sum()
    }
}

// === impl KvGroups ===

impl<B: Backend> KvGroups<B> {
    /// # Errors
    /// When the device lacks memory for the pages.
    pub(crate) fn alloc(
        backend: &B,
        spec: KvPoolSpec,
        shape: KvPoolShape,
        reach: Reach,
    ) -> Result<Self, ComputeError> {
        let KvPoolShape {
            page_size,
            dtype,
            num_slots,
            ..
        } = shape;
        let mut views = Vec::with_capacity(spec.groups.len());
        for group in &spec.groups {
            let num_pages = shape.pages_of(group);
            let len = group.elements_per_token() * page_size * num_pages;
            let region = backend.alloc_exportable(group.name, dtype, len, reach)?;
            let (layers, heads) = (group.layers.len(), group.total_heads);
            let cut = KvCutView::page_first(
                region,
                0..layers,
                group.tensors,
                heads,
                page_size,
                group.head_dim,
            );
            views.push(KvGroupView {
                dtype,
                page_size,
                num_pages,
                num_kv_heads: heads,
                head_dim: group.head_dim,
                tensors: group.tensors,
                cuts: [cut].into(),
            });
        }
        let states = StatePool::alloc(backend, spec.states.clone(), num_slots, reach)?;
        Ok(Self {
            spec,
            shape,
            views,
            states,
        })
    }

    pub(crate) fn views(&self) -> &[KvGroupView<B>] {
        &self.views
    }

    pub(crate) fn states(&self) -> &[StateView<B>] {
        self.states.views()
    }

    /// The views, each with whether it is of the window space.
    pub(crate) fn spaces(&self) -> impl Iterator<Item = (&KvGroupView<B>, bool)> {
        let groups = self.spec.groups.iter();
        let is_window = groups.map(|group| group.window.is_some());
        self.views.iter().zip(is_window)
    }

    /// The pool for a transfer: the full space as pages, and the window space as a state, of which it takes the last
    /// window.
    ///
    /// # Errors
    /// When its dtype has no name on the wire, or the memory cannot be exported or mapped.
    pub(crate) fn memory(&self, backend: &B) -> Result<RankMemory, ExportError> {
        let dtype = wire_dtype(self.shape.dtype)?;
        let (mut groups, mut states) = (Vec::new(), Vec::new());
        let (mut regions, mut state_regions) = (Vec::new(), Vec::new());
        for (spec, view) in self.spec.groups.iter().zip(&self.views) {
            let cuts = view.cuts.iter();
            let memory: Result<Vec<_>, _> =
                cuts.map(|cut| map_region(backend, &cut.region)).collect();
            if spec.window.is_none() {
                groups.push(describe(spec, view, dtype));
                regions.extend(memory?);
            } else {
                states.push(describe_window(spec, view));
                state_regions.extend(memory?);
            }
        }
        states.extend(self.states.describe());
        state_regions.extend(self.states.regions(backend)?);
        Ok(RankMemory {
            num_pages: self.shape.num_pages,
            groups,
            regions,
            states,
            state_regions,
            activations: wire_dtype(backend.activation_dtype())?,
        })
    }
}

/// A group of the full space as peers see it; one tensor-parallel rank holds every head.
fn describe<B: Backend>(spec: &KvGroupSpec, view: &KvGroupView<B>, dtype: KvDtype) -> KvGroup {
    let cut = |cut: &KvCutView<B>| KvCut {
        first_layer: to_u32(cut.first_layer),
        layers: to_u32(cut.num_layers),
    };
    KvGroup {
        name: spec.name.to_owned(),
        dtype,
        head_dim: to_u32(view.head_dim),
        tensors: to_u32(spec.tensors),
        total_heads: to_u32(spec.total_heads),
        head_start: 0,
        heads: to_u32(view.num_kv_heads),
        cuts: view.cuts.iter().map(cut).collect(),
    }
}

/// A group of the window space as peers see it: an item is a page of its one cut, `[kv_head][layer][bytes]`.
fn describe_window<B: Backend>(spec: &KvGroupSpec, view: &KvGroupView<B>) -> StateLayout {
    let elements = spec.tensors * view.page_size * view.head_dim;
    StateLayout {
        name: spec.name.to_owned(),
        state_type: StateType::Swa,
        slots: to_u32(view.num_pages),
        tensors: vec![StateTensor {
            name: "kv".to_owned(),
            total_dim: to_u32(spec.total_heads),
            dim_start: 0,
            dim: to_u32(view.num_kv_heads),
            first_layer: 0,
            layers: to_u32(spec.layers.len()),
            layer_bytes: (elements * view.dtype.size_bytes()) as u64,
        }],
    }
}

pub(crate) fn wire_dtype(dtype: DType) -> Result<KvDtype, ExportError> {
    match dtype {
        DType::F32 => Ok(KvDtype::Float32),
        DType::F16 => Ok(KvDtype::Float16),
        DType::BF16 => Ok(KvDtype::Bfloat16),
        DType::F8E4M3 => Ok(KvDtype::Fp8E4m3),
        DType::U32 | DType::U8 => Err(ExportError::Dtype(dtype)),
    }
}

fn to_u32(len: usize) -> u32 {
    u32::try_from(len).expect("layers, heads and dimensions are checked to be small")
}
