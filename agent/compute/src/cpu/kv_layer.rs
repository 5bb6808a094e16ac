//! One layer of the paged KV pool as kernels address it: a base and strides.

use super::handle::CpuBackend;
use super::isa::Isa;
use super::memory::Dst;
use super::simd::dispatch::Kernel;
use super::simd::halves::{Bf16, F16, Half};
use super::simd::sixteen::{LANES, Sixteen};
use crate::dtype::DType;
use crate::e4m3;
use crate::kv::{KvGroupView, KvLayerSpan, KvScales};
use bytemuck::{AnyBitPattern, NoUninit};
use std::marker::PhantomData;

/// The region of the cut that holds the layer, typed.
pub(super) enum Region {
    F32(Dst<f32>),
    F16(Dst<u16>),
    BF16(Dst<u16>),
    F8E4M3(Dst<u8>),
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
    /// Of K and V.
    scales: [f32; 2],
}

// === impl Region ===

impl Region {
    /// Where it begins, and the bytes of an element.
    pub(super) fn bytes(&self) -> (*const u8, usize) {
        match self {
            Self::F32(region) => (region.as_ptr().cast(), 4),
            Self::F16(region) | Self::BF16(region) => (region.as_ptr().cast(), 2),
            Self::F8E4M3(region) => (region.as_ptr().cast(), 1),
        }
    }
}

// === impl KvLayer ===

impl KvLayer {
    pub(super) fn new(kv: &KvGroupView<CpuBackend>, scales: KvScales, layer: usize) -> Self {
        let KvGroupView {
            dtype,
            page_size,
            num_pages,
            num_kv_heads,
            head_dim,
            tensors: _,
            cuts: _,
        } = *kv;
        let KvLayerSpan { cut, offset, len } = kv.layer_span(layer);
        let region = &cut.region;
        let region = match dtype {
            DType::F32 => Region::F32(region.dst("KV region", len)),
            DType::F16 => Region::F16(region.dst("KV region", len)),
            DType::BF16 => Region::BF16(region.dst("KV region", len)),
            DType::F8E4M3 => Region::F8E4M3(region.dst("KV region", len)),
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
            scales: [scales.k, scales.v],
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

    /// What elements of K (`kv` 0) or V (`kv` 1) as [`Simd::load_f8_part`](super::simd::Simd::load_f8_part) has them
    /// are multiplied by.
    pub(super) fn f8_factor(&self, kv: usize) -> f32 {
        self.scales[kv] * e4m3::OVER_F16
    }

    /// Writes one head of one slot's K (`kv` 0) or V (`kv` 1), rounding to the pool's dtype. Returns how many values
    /// lie beyond the dtype's largest, which takes their place.
    ///
    /// # Safety
    /// On the queue, and nothing else touches this head of this slot meanwhile.
    pub(super) unsafe fn write(
        &self,
        isa: Isa,
        slot: usize,
        kv_head: usize,
        kv: usize,
        values: &[f32],
    ) -> u64 {
        let page_at = self.k_at(slot / self.page_size, kv_head) + kv * self.kv_stride;
        let at = page_at + slot % self.page_size * self.slot_stride;
        // SAFETY: exclusive by the caller.
        unsafe {
            match &self.region {
                Region::F32(region) => out(region, at, values).copy_from_slice(values),
                Region::F16(region) => isa.dispatch(Round::<F16> {
                    values,
                    out: out(region, at, values),
                    format: PhantomData,
                }),
                Region::BF16(region) => isa.dispatch(Round::<Bf16> {
                    values,
                    out: out(region, at, values),
                    format: PhantomData,
                }),
                Region::F8E4M3(region) => {
                    let scale = self.scales[kv];
                    let out = out(region, at, values).iter_mut();
                    out.zip(values)
                        .for_each(|(out, v)| *out = e4m3::rounded(v / scale));
                    let beyond = values.iter().filter(|v| (*v / scale).abs() > e4m3::MAX);
                    return beyond.count() as u64;
                }
            }
        }
        0
    }
}

/// Where values go.
///
/// # Safety
/// On the queue, with `values.len()` elements from `at` that no other thread touches.
#[allow(clippy::mut_from_ref, reason = "the caller's promise")]
unsafe fn out<'a, T: AnyBitPattern + NoUninit>(
    region: &'a Dst<T>,
    at: usize,
    values: &[f32],
) -> &'a mut [T] {
    // SAFETY: the caller's.
    unsafe { region.slice_mut(at..at + values.len()) }
}

/// Rounds values to two bytes each.
struct Round<'a, F> {
    values: &'a [f32],
    /// As many.
    out: &'a mut [u16],
    format: PhantomData<F>,
}

impl<F: Half> Kernel for Round<'_, F> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) {
        let Self {
            values,
            out,
            format: PhantomData,
        } = self;
        let (chunks, rest) = out.as_chunks_mut::<LANES>();
        let (values, values_rest) = values.split_at(chunks.len() * LANES);
        // SAFETY: the instruction set by the caller; chunks are whole vectors.
        unsafe {
            for (out, values) in chunks.iter_mut().zip(values.as_chunks::<LANES>().0) {
                F::store(V::load(values.as_ptr()), out.as_mut_ptr());
            }
            if !rest.is_empty() {
                let mut last = [0; LANES];
                F::store(V::load_part(values_rest, 0.0), last.as_mut_ptr());
                rest.copy_from_slice(&last[..rest.len()]);
            }
        }
    }
}
