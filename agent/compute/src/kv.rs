//! How ops see the paged KV pool: groups of layers, cut into regions, described by strides.
//!
//! A cut is one region `[page][kv_head][layer in cut][tensor][slot][head_dim]`; ops take base and
//! strides, so the order is the pool owner's choice. Which page belongs to whom is not known here.

use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;
use std::ops::Range;
use std::sync::Arc;

/// An `out_slots` entry for which no K and V are written (a padding row).
pub const NO_SLOT: u32 = u32::MAX;

/// What stored keys and values of a layer are multiplied by. Only pools of E4M3 have other scales than 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KvScales {
    pub k: f32,
    pub v: f32,
}

/// Layers that share a page table, dtype, KV heads and head dim.
#[derive(Clone, Debug)]
pub struct KvGroupView<B: DeviceTypes> {
    pub dtype: DType,
    /// Slots (tokens) per page.
    pub page_size: usize,
    pub num_pages: usize,
    pub num_kv_heads: usize,
    pub head_dim: usize,
    /// Per layer: 2, keys and values, or 1 where what is a key is a value, too.
    pub tensors: usize,
    /// In ascending layer order, without gaps, from layer 0 of the group.
    pub cuts: Arc<[KvCutView<B>]>,
}

/// A range of the group's layers in one region. Strides count elements of the group's dtype; the
/// elements of one head of one slot are contiguous.
#[derive(Clone, Debug)]
pub struct KvCutView<B: DeviceTypes> {
    pub region: B::Buffer,
    pub first_layer: usize,
    pub num_layers: usize,
    pub page_stride: usize,
    pub head_stride: usize,
    pub layer_stride: usize,
    /// From a K to the V beside it, if there are any.
    pub kv_stride: usize,
    pub slot_stride: usize,
}

/// One layer of a group in its cut's region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KvLayerSpan<'a, B: DeviceTypes> {
    pub(crate) cut: &'a KvCutView<B>,
    /// Element where the layer's first K begins.
    pub(crate) offset: usize,
    /// Elements of the region that ops may touch.
    pub(crate) len: usize,
}

// === impl KvScales ===

impl KvScales {
    pub const ONE: Self = Self { k: 1.0, v: 1.0 };

    /// These, if a pool of the dtype has scales.
    pub fn of_pool(self, dtype: DType) -> Self {
        if dtype == DType::F8E4M3 {
            self
        } else {
            Self::ONE
        }
    }

    /// # Panics
    /// When a pool of the dtype has no such scales.
    pub(crate) fn check(self, dtype: DType) {
        let is_fit = |scale: f32| scale.is_finite() && scale > 0.0;
        assert!(
            is_fit(self.k) && is_fit(self.v) && self == self.of_pool(dtype),
            "a KV pool of {dtype:?} with {self:?}"
        );
    }
}

// === impl KvGroupView ===

impl<B: DeviceTypes> KvGroupView<B> {
    /// The cut that holds layer `layer` of the group, and the layer's place in it.
    ///
    /// # Panics
    /// When no cut holds the layer.
    pub fn cut_of(&self, layer: usize) -> (&KvCutView<B>, usize) {
        let cut = self
            .cuts
            .iter()
            .find(|cut| (cut.first_layer..cut.first_layer + cut.num_layers).contains(&layer));
        let cut = cut.unwrap_or_else(|| panic!("no cut of the KV group holds layer {layer}"));
        (cut, layer - cut.first_layer)
    }
}

impl<B: DeviceTypes> KvGroupView<B> {
    /// Where layer `layer` of the group lies, for ops to address.
    ///
    /// # Panics
    /// When no cut holds the layer, or the cut's region is of another dtype or too small.
    pub(crate) fn layer_span(&self, layer: usize) -> KvLayerSpan<'_, B> {
        assert!(
            [
                self.page_size,
                self.num_kv_heads,
                self.num_pages,
                self.tensors
            ]
            .iter()
            .all(|count| *count > 0),
            "the KV group is empty"
        );
        let (cut, layer_in_cut) = self.cut_of(layer);
        let offset = layer_in_cut * cut.layer_stride;
        let last = offset
            + (self.num_pages - 1) * cut.page_stride
            + (self.num_kv_heads - 1) * cut.head_stride
            + (self.tensors - 1) * cut.kv_stride
            + (self.page_size - 1) * cut.slot_stride
            + self.head_dim;
        let len = last.max(self.num_pages * cut.page_stride);
        cut.region.expect_elements("KV region", &[self.dtype], len);
        KvLayerSpan { cut, offset, len }
    }
}

// === impl KvCutView ===

impl<B: DeviceTypes> KvCutView<B> {
    /// The page order of docs/kv-layout.md: `[page][kv_head][layer in cut][tensor][slot][head_dim]`, dense.
    pub fn page_first(
        region: B::Buffer,
        layers: Range<usize>,
        tensors: usize,
        num_kv_heads: usize,
        page_size: usize,
        head_dim: usize,
    ) -> Self {
        let (first_layer, num_layers) = (layers.start, layers.len());
        let slot_stride = head_dim;
        let kv_stride = slot_stride * page_size;
        let layer_stride = kv_stride * tensors;
        let head_stride = layer_stride * num_layers;
        let page_stride = head_stride * num_kv_heads;
        assert!(
            page_stride > 0 && region.len().is_multiple_of(page_stride),
            "a KV region of {} elements is no whole number of pages of {page_stride}",
            region.len()
        );
        Self {
            region,
            first_layer,
            num_layers,
            page_stride,
            head_stride,
            layer_stride,
            kv_stride,
            slot_stride,
        }
    }
}
