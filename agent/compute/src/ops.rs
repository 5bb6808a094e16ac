//! The contract between models and devices: fused-layer ops over caller-owned device buffers.
//!
//! Every op is enqueued on the backend's queue and runs in order; enqueueing never waits for
//! compute. No op takes a host slice or returns a value: inputs come by [`Backend::upload`],
//! results leave by [`Backend::read`]. Sizes that shape an op (`rows`) are host numbers, everything
//! that varies within a batch is a device buffer, so that a step can be captured and replayed.
//! Wrong shapes are programmer errors and panic at the call; wrong indices inside device buffers
//! fault the queue, which tickets and [`Backend::health`] report.

use crate::buffer::{DeviceBuffer, MemoryExport, Ticket};
use crate::dtype::DType;
use crate::error::ComputeError;
use crate::kv::KvGroupView;
use crate::sampling::{SampleOut, SamplingView};
use crate::weight::WeightSource;
use bytemuck::NoUninit;
use std::fmt::Debug;

/// Keys per attention block: block `i` of a sequence holds positions `[64·i, 64·(i+1))`.
pub const ATTN_BLOCK_LEN: usize = 64;

/// A `gather_rows` index whose output row stays as it is.
pub const NO_ROW: u32 = u32::MAX;

/// A device with one in-order queue. Handles are cheap to clone and share the queue.
///
/// Numerics: a row's result is bit-equal for any other rows, chunking, page size and
/// the number of threads. So linears accumulate k in one order at every row count, and attention
/// folds blocks of [`ATTN_BLOCK_LEN`] keys at absolute positions.
///
/// Activations have the dtype [`Backend::activation_dtype`]; norm weights, biases, RoPE tables and
/// logits are `F32` on every backend; token ids, positions and indices are `U32`.
pub trait Backend: Clone + Debug + Send + Sync + 'static {
    type Buffer: DeviceBuffer;
    /// A packed linear weight.
    type Weight: Clone + Debug + Send + Sync + 'static;
    /// A packed embedding table.
    type Embedding: Clone + Debug + Send + Sync + 'static;
    type Ticket: Ticket;

    // Memory.

    fn activation_dtype(&self) -> DType;

    /// Whether the ops take a KV pool of `dtype` whose heads have `head_dim` elements.
    ///
    /// # Errors
    /// Says what they take instead.
    fn check_kv(&self, dtype: DType, head_dim: usize) -> Result<(), ComputeError>;

    /// Zeroed device memory of `len` elements. `name` is for messages.
    ///
    /// # Errors
    /// If the allocation fails.
    fn alloc(&self, name: &str, dtype: DType, len: usize) -> Result<Self::Buffer, ComputeError>;

    /// As [`Self::alloc`], in memory that can be exported (the KV pool, state slots).
    ///
    /// # Errors
    /// If the allocation fails.
    fn alloc_exportable(
        &self,
        name: &str,
        dtype: DType,
        len: usize,
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

    /// Packs `y = x·Wᵀ`. Parts are joined along n (q|k|v), or with `interleave` row by row (row i
    /// of every part in turn: gate and up for [`Epilogue::SwiGlu`]).
    ///
    /// # Errors
    /// Names the part whose bytes, shape or format do not fit.
    fn pack_linear(
        &self,
        parts: &[WeightSource<'_>],
        interleave: bool,
    ) -> Result<Self::Weight, ComputeError>;

    /// # Errors
    /// When the table's bytes do not fit its shape.
    fn pack_embedding(&self, table: &WeightSource<'_>) -> Result<Self::Embedding, ComputeError>;

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
        self.rms_norm(norm);
        self.linear(linear);
    }

    fn rope_table(&self, op: RopeTable<'_, Self>);
    fn qkv_prep(&self, op: QkvPrep<'_, Self>);
    fn attn_paged(&self, op: AttnPaged<'_, Self>);
    fn gather_rows(&self, op: GatherRows<'_, Self>);
    fn sample(&self, op: Sample<'_, Self>);
    fn copy_pages(&self, op: CopyPages<'_, Self>);
}

/// What one forward step works on. Sequence `s` owns the query rows
/// `[q_indptr[s], q_indptr[s+1])`, which are the last tokens of its `kv_lens[s]`: query `j` of
/// `q_len` has the absolute position `kv_len - q_len + j` and sees the keys up to itself.
#[derive(Clone, Debug)]
pub struct BatchView<B: Backend> {
    /// Rows of this step: queries of all sequences, one after another.
    pub num_tokens: usize,
    pub num_seqs: usize,
    /// `U32 [num_tokens]`.
    pub token_ids: B::Buffer,
    /// `U32 [num_tokens]`, for RoPE.
    pub positions: B::Buffer,
    /// `U32 [num_seqs + 1]`, from 0 to `num_tokens`.
    pub q_indptr: B::Buffer,
    /// `U32 [num_seqs]`: keys of a sequence, those of this step included.
    pub kv_lens: B::Buffer,
    /// `U32 [num_seqs][page_table_stride]`: the page of keys `[page_size·i, page_size·(i+1))`.
    pub page_table: B::Buffer,
    pub page_table_stride: usize,
    /// `U32 [num_tokens]`: `page·page_size + slot` where the row's K and V go, or
    /// [`NO_SLOT`](crate::kv::NO_SLOT).
    pub out_slots: B::Buffer,
}

/// `out[r] = table[token_ids[r]]`; zeros for [`NO_TOKEN`](crate::sampling::NO_TOKEN), which a step that is
/// launched ahead may be given by the one before it.
#[derive(Debug)]
pub struct Embed<'a, B: Backend> {
    pub table: &'a B::Embedding,
    /// `U32 [rows]`.
    pub token_ids: &'a B::Buffer,
    /// `[rows][hidden]`.
    pub out: &'a B::Buffer,
    pub rows: usize,
}

/// `x += add` (when given), then `out = x / sqrt(mean(x²) + eps) · weight`, per row.
#[derive(Debug)]
pub struct RmsNorm<'a, B: Backend> {
    /// `[rows][hidden]`, the residual stream.
    pub x: &'a B::Buffer,
    /// `[rows][hidden]`.
    pub add: Option<&'a B::Buffer>,
    /// `F32 [hidden]`.
    pub weight: &'a B::Buffer,
    pub eps: f32,
    /// `[rows][hidden]`; may be `x` itself.
    pub out: &'a B::Buffer,
    pub rows: usize,
}

/// `y = x·Wᵀ`, then the epilogue into `out`. Logits are a linear over the gathered last rows.
#[derive(Debug)]
pub struct Linear<'a, B: Backend> {
    /// `[rows][k]`.
    pub x: &'a B::Buffer,
    pub weight: &'a B::Weight,
    pub epilogue: Epilogue,
    /// `[rows][n]`, or `[rows][n / 2]` with SwiGLU. Shares no memory with `x`.
    pub out: &'a B::Buffer,
    pub rows: usize,
}

/// What a linear does with `y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Epilogue {
    /// `out = y`.
    Store,
    /// `out += y`: `out` is the residual stream.
    AddResidual,
    /// `out[i] = silu(y[2i]) · y[2i + 1]`, for a weight whose gate and up rows are interleaved.
    SwiGlu,
}

/// `out[r] = [cos(p·inv_freq) · factor | sin(p·inv_freq) · factor]` for `p = positions[r]`: made
/// once per step, used by every layer.
#[derive(Debug)]
pub struct RopeTable<'a, B: Backend> {
    /// `U32 [rows]`.
    pub positions: &'a B::Buffer,
    /// `F32 [rotary_dim / 2]`, with the model's RoPE scaling already in it.
    pub inv_freq: &'a B::Buffer,
    /// Attention factor of the RoPE scaling (YaRN); 1 otherwise.
    pub factor: f32,
    /// `F32 [rows][rotary_dim]`.
    pub out: &'a B::Buffer,
    pub rows: usize,
}

/// Turns the output of the qkv linear into queries and cached keys and values: adds the bias,
/// norms q and k per head (when given), rotates the first `rotary_dim` of each head by halves
/// (dimension i with i + rotary_dim/2), leaves q in `qkv` and writes k and v to `batch.out_slots`.
#[derive(Debug)]
pub struct QkvPrep<'a, B: Backend> {
    /// `[num_tokens][(num_q_heads + 2·num_kv_heads)·head_dim]`: q, k, v.
    pub qkv: &'a B::Buffer,
    /// `F32`, one row of `qkv`.
    pub bias: Option<&'a B::Buffer>,
    /// `F32 [head_dim]`.
    pub q_norm: Option<&'a B::Buffer>,
    /// `F32 [head_dim]`.
    pub k_norm: Option<&'a B::Buffer>,
    pub eps: f32,
    /// `F32 [num_tokens][rotary_dim]`, made by [`RopeTable`].
    pub rope: &'a B::Buffer,
    pub rotary_dim: usize,
    pub num_q_heads: usize,
    pub batch: &'a BatchView<B>,
    pub kv: &'a KvGroupView<B>,
    /// Layer within the group.
    pub layer: usize,
}

/// Causal attention of the step's queries over their sequences' pages. Query head h reads KV head
/// `h / (num_q_heads / num_kv_heads)`.
#[derive(Debug)]
pub struct AttnPaged<'a, B: Backend> {
    /// `[num_tokens][q_row_stride]`, heads first in each row; `qkv` after [`QkvPrep`].
    pub q: &'a B::Buffer,
    pub q_row_stride: usize,
    pub num_q_heads: usize,
    /// Usually `head_dim^-½`.
    pub scale: f32,
    pub batch: &'a BatchView<B>,
    pub kv: &'a KvGroupView<B>,
    /// Layer within the group.
    pub layer: usize,
    /// `[num_tokens][num_q_heads·head_dim]`.
    pub out: &'a B::Buffer,
}

/// `out[r] = src[indices[r]]`; an index of [`NO_ROW`] leaves its row. Any dtype, the same on both
/// sides: hidden rows that need logits, or sampled tokens that become the next step's ids.
#[derive(Debug)]
pub struct GatherRows<'a, B: Backend> {
    pub src: &'a B::Buffer,
    /// `U32 [rows]`.
    pub indices: &'a B::Buffer,
    /// Shares no memory with `src`.
    pub out: &'a B::Buffer,
    pub row_len: usize,
    pub rows: usize,
}

/// Draws a token per row; see [`crate::sampling`].
#[derive(Debug)]
pub struct Sample<'a, B: Backend> {
    /// `F32 [rows][vocab]`; penalties and bias are applied in place.
    pub logits: &'a B::Buffer,
    pub vocab: usize,
    pub rows: usize,
    pub params: &'a SamplingView<B>,
    pub out: &'a SampleOut<B>,
}

/// Copies whole pages between the pool and a host buffer laid out `[page][cut]`, for retraction.
#[derive(Debug)]
pub struct CopyPages<'a, B: Backend> {
    pub kv: &'a KvGroupView<B>,
    /// `U32 [num_pages]`.
    pub page_indices: &'a B::Buffer,
    pub num_pages: usize,
    /// The pool's dtype, `num_pages` times the sum of the cuts' page strides.
    pub host: &'a B::Buffer,
    pub direction: CopyDirection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    PoolToHost,
    HostToPool,
}
