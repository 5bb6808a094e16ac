//! What a step works on.

use crate::device_types::DeviceTypes;

/// What one forward step works on. Sequence `s` owns the query rows
/// `[q_indptr[s], q_indptr[s+1])`, which are the last tokens of its `kv_lens[s]`: query `j` of
/// `q_len` has the absolute position `kv_len - q_len + j` and sees the keys up to itself.
#[derive(Clone, Debug)]
pub struct BatchView<B: DeviceTypes> {
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
