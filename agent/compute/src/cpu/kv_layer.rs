//! One layer of the paged KV pool as kernels address it: a base and strides.

use super::backend::CpuBackend;
use super::memory::Dst;
use crate::buffer::DeviceBuffer;
use crate::dtype::DType;
use crate::kv::KvGroupView;
use bytemuck::{AnyBitPattern, NoUninit};
use half::{bf16, f16};

/// The region of the cut that holds the layer, typed.
pub(super) enum Region {
    F32(Dst<f32>),
    F16(Dst<u16>),
    BF16(Dst<u16>),
}

pub(super) struct KvLayer {
    pub(super) region: Region,
    pub(super) page_size: usize,
    pub(super) num_pages: usize,
    pub(super) num_kv_heads: usize,
    pub(super) head_dim: usize,
    /// Of the layer's first K.
    offset: usize,
    page_stride: usize,
    head_stride: usize,
    pub(super) kv_stride: usize,
    pub(super) slot_stride: usize,
}

// === impl KvLayer ===

impl KvLayer {
    pub(super) fn new(kv: &KvGroupView<CpuBackend>, layer: usize) -> Self {
        let KvGroupView {
            dtype,
            page_size,
            num_pages,
            num_kv_heads,
            head_dim,
            cuts: _,
        } = *kv;
        let (cut, layer_in_cut) = kv.cut_of(layer);
        let region = &cut.region;
        assert!(
            region.dtype() == dtype,
            "KV region {region:?} of a group of {dtype:?}"
        );
        assert!(
            page_size > 0 && num_kv_heads > 0 && num_pages > 0,
            "the KV group is empty"
        );
        let offset = layer_in_cut * cut.layer_stride;
        let last = offset
            + (num_pages - 1) * cut.page_stride
            + (num_kv_heads - 1) * cut.head_stride
            + cut.kv_stride
            + (page_size - 1) * cut.slot_stride
            + head_dim;
        let needed = last.max(num_pages * cut.page_stride);
        let region = match dtype {
            DType::F32 => Region::F32(region.dst("KV region", needed)),
            DType::F16 => Region::F16(region.dst("KV region", needed)),
            DType::BF16 => Region::BF16(region.dst("KV region", needed)),
            DType::U32 | DType::U8 => panic!("a KV pool of {dtype:?} holds no keys and values"),
        };
        Self {
            region,
            page_size,
            num_pages,
            num_kv_heads,
            head_dim,
            offset,
            page_stride: cut.page_stride,
            head_stride: cut.head_stride,
            kv_stride: cut.kv_stride,
            slot_stride: cut.slot_stride,
        }
    }

    /// Element where slot 0 of the page's K of this head begins; V is `kv_stride` on.
    pub(super) fn k_at(&self, page: usize, kv_head: usize) -> usize {
        assert!(
            page < self.num_pages,
            "page {page} is beyond the pool of {}",
            self.num_pages
        );
        self.offset + page * self.page_stride + kv_head * self.head_stride
    }

    /// Writes one head of one slot's K (`kv` 0) or V (`kv` 1), rounding to the pool's dtype.
    ///
    /// # Safety
    /// On the queue, and nothing else touches this head of this slot meanwhile.
    pub(super) unsafe fn write(&self, slot: usize, kv_head: usize, kv: usize, values: &[f32]) {
        let page_at = self.k_at(slot / self.page_size, kv_head) + kv * self.kv_stride;
        let at = page_at + slot % self.page_size * self.slot_stride;
        // SAFETY: exclusive by the caller.
        unsafe {
            match &self.region {
                Region::F32(region) => write_as(region, at, values, |v| v),
                Region::F16(region) => write_as(region, at, values, |v| f16::from_f32(v).to_bits()),
                Region::BF16(region) => {
                    write_as(region, at, values, |v| bf16::from_f32(v).to_bits());
                }
            }
        }
    }
}

/// # Safety
/// On the queue, and no other task touches the `values.len()` elements from `at`.
unsafe fn write_as<T: AnyBitPattern + NoUninit>(
    region: &Dst<T>,
    at: usize,
    values: &[f32],
    round: impl Fn(f32) -> T,
) {
    // SAFETY: the caller's.
    let out = unsafe { region.slice_mut(at..at + values.len()) };
    out.iter_mut()
        .zip(values)
        .for_each(|(out, v)| *out = round(*v));
}
