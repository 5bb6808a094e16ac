//! The contract between models and devices: fused-layer ops over caller-owned device buffers.
//!
//! Every op is enqueued on the backend's queue and runs in order; enqueueing never waits for
//! compute. No op takes a host slice or returns a value: inputs come by [`Backend::upload`],
//! results leave by [`Backend::read`]. Sizes that shape an op (`rows`) are host numbers, everything
//! that varies within a batch is a device buffer, so that a step can be captured and replayed.
//! Wrong indices inside device buffers fault the queue, which tickets and [`Backend::health`] report.
//!
//! Each op is a file: its struct, what it means, and its shape check, which every backend calls
//! first. Wrong shapes are programmer errors and panic there. `cpu/ops`, `cuda/ops` and `tch/ops`
//! have a file of the same name for it.

mod attn_paged;
mod batch;
mod causal_conv;
mod copy_pages;
mod copy_states;
mod embed;
mod gated_norm;
mod gather_rows;
mod gdn_scan;
mod head_linear;
mod linear;
mod mla_prep;
mod moe_experts;
mod moe_finish;
pub(crate) mod moe_route;
pub(crate) mod needs;
mod qkv_prep;
mod rms_norm;
mod rope_table;
mod sample;
mod strided;

use crate::device_types::DeviceTypes;
use crate::dtype::DType;
use crate::error::ComputeError;
use crate::export::{MemoryExport, Reach};
use crate::k_order::Packing;
use crate::weight::WeightSource;
pub use attn_paged::{ATTN_BLOCK_LEN, AttnPaged, AttnValues};
pub use batch::BatchView;
use bytemuck::NoUninit;
pub use causal_conv::CausalConv;
pub use copy_pages::{CopyDirection, CopyPages};
pub use copy_states::CopyStates;
pub use embed::Embed;
pub use gated_norm::GatedNorm;
pub use gather_rows::{GatherRows, NO_ROW};
pub use gdn_scan::GdnScan;
pub(crate) use gdn_scan::{GdnShape, L2_EPS};
pub use head_linear::{HeadLinear, HeadRows};
pub use linear::{Epilogue, Linear};
pub use mla_prep::MlaPrep;
pub use moe_experts::{ExpertBias, ExpertSource, MoeExperts};
pub use moe_finish::{MoeFinish, SharedRows};
pub use moe_route::{ExpertGroups, GroupScore, MoeRoute, Routing, Scores};
pub use needs::{KvNeeds, OpFeature, OpNeeds, SHORT_DELTA_KEYS_MAX};
pub use qkv_prep::QkvPrep;
pub use rms_norm::{RmsNorm, WriteMode};
pub use rope_table::RopeTable;
pub use sample::Sample;
pub use strided::Strided;

/// A device with one in-order queue. Handles are cheap to clone and share the queue.
///
/// Numerics: a row's result is bit-equal for any other rows, chunking, page size and
/// the number of threads. So linears accumulate k in one order at every row count, and attention
/// folds blocks of [`ATTN_BLOCK_LEN`] keys at absolute positions.
///
/// Activations have the dtype [`Backend::activation_dtype`]; norm weights, biases, RoPE tables and
/// logits are `F32` on every backend; token ids, positions and indices are `U32`.
pub trait Backend: DeviceTypes {
    // Memory.

    fn activation_dtype(&self) -> DType;

    /// Rows that go through experts at a time: their terms, `top_k` of a row, are in memory at once, and the experts'
    /// weights are read again for the next ones.
    fn expert_rows_max(&self) -> usize {
        1024
    }

    /// Whether this backend has what a model needs. Asked before the model's weights are read; what
    /// it refuses is not enqueued.
    ///
    /// # Errors
    /// Names what it lacks.
    fn check_ops(&self, needs: &OpNeeds) -> Result<(), ComputeError>;

    /// Zeroed device memory of `len` elements. `name` is for messages.
    ///
    /// # Errors
    /// If the allocation fails.
    fn alloc(&self, name: &str, dtype: DType, len: usize) -> Result<Self::Buffer, ComputeError>;

    /// As [`Self::alloc`], in memory that can be exported (the KV pool, state slots) as far as `reach` says.
    ///
    /// # Errors
    /// If the allocation fails.
    fn alloc_exportable(
        &self,
        name: &str,
        dtype: DType,
        len: usize,
        reach: Reach,
    ) -> Result<Self::Buffer, ComputeError>;

    /// As [`Self::alloc`], in host memory that the device copies to and from quickly.
    ///
    /// # Errors
    /// If the allocation fails.
    fn alloc_host(
        &self,
        name: &str,
        dtype: DType,
        len: usize,
    ) -> Result<Self::Buffer, ComputeError>;

    /// Address and handle of a whole exportable allocation. The memory lives while a handle to
    /// the buffer does; a holder of the address keeps a clone.
    ///
    /// # Errors
    /// When the buffer is not exportable or the handle cannot be duplicated.
    fn export(&self, buffer: &Self::Buffer) -> Result<MemoryExport, ComputeError>;

    // Weights: packed once, at load, before the first step.

    /// Packs `y = x·Wᵀ`. Parts are joined along n (q|k|v), or interleaved row by row (row i
    /// of every part in turn: gate and up for [`Epilogue::SwiGlu`]). The weight keeps the packing's order of k.
    ///
    /// # Errors
    /// Names the part whose bytes, shape or format do not fit.
    fn pack_linear(
        &self,
        parts: &[WeightSource<'_>],
        packing: Packing,
    ) -> Result<Self::Weight, ComputeError>;

    /// # Errors
    /// When the table's bytes do not fit its shape.
    fn pack_embedding(&self, table: &WeightSource<'_>) -> Result<Self::Embedding, ComputeError>;

    /// Packs the experts of a layer that this rank has, one at least, gate and up interleaved.
    ///
    /// # Errors
    /// Names the tensor whose bytes, shape or format do not fit, or what the backend lacks.
    fn pack_experts(&self, experts: &[ExpertSource<'_>]) -> Result<Self::Experts, ComputeError>;

    /// Reserves the memory that linears of up to `rows` rows with `weight` need in addition to
    /// their buffers, so that none of them fails for lack of it.
    ///
    /// # Errors
    /// If the allocation fails.
    fn reserve_linear(
        &self,
        _weight: &Self::Weight,
        _epilogue: Epilogue,
        _rows: usize,
    ) -> Result<(), ComputeError> {
        Ok(())
    }

    // Transfers between host and device.

    /// Copies `src` to the beginning of `dst`, in queue order. `src` is free on return.
    fn upload<T: NoUninit>(&self, dst: &Self::Buffer, src: &[T]);

    /// Reads `src` as it is when the queue gets there.
    fn read(&self, src: &Self::Buffer) -> Self::Ticket;

    /// A ticket without bytes, done when everything enqueued before it is.
    fn fence(&self) -> Self::Ticket;

    /// # Errors
    /// The first fault of the queue, which is final.
    fn health(&self) -> Result<(), ComputeError>;

    /// Keys and values that lay beyond the range of their pool's dtype and were written at its end, since the start.
    fn kv_saturations(&self) -> u64 {
        0
    }

    /// Whether [`Self::replay`] makes repeated steps cheaper: they should then be padded to few
    /// shapes.
    fn replays(&self) -> bool {
        false
    }

    /// Enqueues what `step` does, as one launch if the same ops ran before over the same buffers.
    /// `step` neither uploads, reads nor frees what its ops use. Returns whether it was one launch,
    /// as a graph.
    fn replay(&self, step: impl FnOnce()) -> bool {
        step();
        false
    }

    // Ops.

    fn embed(&self, op: Embed<'_, Self>);
    fn rms_norm(&self, op: RmsNorm<'_, Self>);
    fn linear(&self, op: Linear<'_, Self>);

    /// [`Self::rms_norm`], then [`Self::linear`] over the rows that it makes. A backend may do both at once: what
    /// `norm.out` holds afterwards is open.
    fn norm_linear(&self, norm: RmsNorm<'_, Self>, linear: Linear<'_, Self>) {
        linear.check_follows(&norm);
        self.rms_norm(norm);
        self.linear(linear);
    }

    fn rope_table(&self, op: RopeTable<'_, Self>);
    fn qkv_prep(&self, op: QkvPrep<'_, Self>);
    fn attn_paged(&self, op: AttnPaged<'_, Self>);
    fn gather_rows(&self, op: GatherRows<'_, Self>);
    fn sample(&self, op: Sample<'_, Self>);
    fn copy_pages(&self, op: CopyPages<'_, Self>);

    // A mixture of experts. A backend without these ops says so in `check_ops`.

    fn moe_route(&self, op: MoeRoute<'_, Self>) {
        unreachable!("check_ops refuses experts: {op:?}");
    }

    fn moe_experts(&self, op: MoeExperts<'_, Self>) {
        unreachable!("check_ops refuses experts: {op:?}");
    }

    fn moe_finish(&self, op: MoeFinish<'_, Self>) {
        unreachable!("check_ops refuses experts: {op:?}");
    }

    // Ops that a backend may lack: those of a feature which `check_ops` then refuses.

    /// Of [`OpFeature::GatedDelta`].
    fn causal_conv(&self, _op: CausalConv<'_, Self>) {
        unreachable!("check_ops refuses models with states where this op is missing")
    }

    /// Of [`OpFeature::GatedDelta`].
    fn gdn_scan(&self, _op: GdnScan<'_, Self>) {
        unreachable!("check_ops refuses models with states where this op is missing")
    }

    /// Of [`OpFeature::GatedDelta`].
    fn gated_norm(&self, _op: GatedNorm<'_, Self>) {
        unreachable!("check_ops refuses models with states where this op is missing")
    }

    /// Of [`OpFeature::GatedDelta`].
    fn copy_states(&self, _op: CopyStates<'_, Self>) {
        unreachable!("check_ops refuses models with states where this op is missing")
    }

    /// Of [`OpFeature::LatentAttention`].
    fn mla_prep(&self, _op: MlaPrep<'_, Self>) {
        unreachable!("check_ops refuses latent attention where this op is missing")
    }

    /// Of [`OpFeature::LatentAttention`].
    fn head_linear(&self, _op: HeadLinear<'_, Self>) {
        unreachable!("check_ops refuses latent attention where this op is missing")
    }
}
