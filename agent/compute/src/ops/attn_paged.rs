//! Attention over paged keys and values.

use super::batch::BatchView;
use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;
use crate::kv::KvGroupView;

/// Keys per attention block: block `i` of a sequence holds positions `[64·i, 64·(i+1))`.
pub const ATTN_BLOCK_LEN: usize = 64;

/// Causal attention of the step's queries over their sequences' pages. Query head h reads KV head
/// `h / (num_q_heads / num_kv_heads)`.
#[derive(Debug)]
pub struct AttnPaged<'a, B: DeviceTypes> {
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

// === impl AttnPaged ===

impl<B: DeviceTypes> AttnPaged<'_, B> {
    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be.
    pub(crate) fn check(&self, activations: DType) {
        let Self {
            q,
            q_row_stride,
            num_q_heads,
            scale: _,
            batch,
            kv,
            layer: _,
            out,
        } = *self;
        let (rows, seqs, words) = (batch.num_tokens, batch.num_seqs, [DType::U32]);
        let row_len = num_q_heads * kv.head_dim;
        assert!(
            num_q_heads > 0 && num_q_heads.is_multiple_of(kv.num_kv_heads),
            "{num_q_heads} query heads are no multiple of {} KV heads",
            kv.num_kv_heads
        );
        assert!(
            q_row_stride >= row_len,
            "q rows of {q_row_stride} hold no {row_len} elements"
        );
        q.expect_elements("attn q", &[activations], self.q_len());
        out.expect_elements("attn out", &[activations], rows * row_len);
        out.expect_apart("attn out", &[q]);
        let table_len = seqs * batch.page_table_stride;
        batch.q_indptr.expect_elements("q_indptr", &words, seqs + 1);
        batch.kv_lens.expect_elements("kv_lens", &words, seqs);
        batch
            .page_table
            .expect_elements("page_table", &words, table_len);
    }

    /// Elements of `q` up to the last row's last.
    pub(crate) fn q_len(&self) -> usize {
        let before = self.batch.num_tokens.checked_sub(1);
        before.map_or(0, |before| {
            before * self.q_row_stride + self.num_q_heads * self.kv.head_dim
        })
    }
}
