//! Attention over paged keys and values.

use super::batch::BatchView;
use super::needs::OpFeature;
use super::strided::Strided;
use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;
use crate::kv::{KvGroupView, KvScales};

/// Keys per attention block: block `i` of a sequence holds positions `[64·i, 64·(i+1))`.
pub const ATTN_BLOCK_LEN: usize = 64;

/// Causal attention of the step's queries over their sequences' pages: the softmax of
/// `scale · q·k`, soft-capped where that is given, weighs the values. Query head h reads KV head
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
    pub kv_scales: KvScales,
    /// Layer within the group.
    pub layer: usize,
    /// The query at position p sees only the keys `p - window < j ≤ p`. Pages without a key that a
    /// query of this step sees are not read; their entries in the page table may be anything.
    pub window: Option<usize>,
    /// `F32 [num_q_heads]`: a score that takes part in the softmax and has no value.
    pub sinks: Option<&'a B::Buffer>,
    /// A score becomes `cap · tanh(score / cap)`.
    pub softcap: Option<f32>,
    pub values: AttnValues,
    /// `[num_tokens][num_q_heads·value_dim]`: the result is multiplied by `sigmoid(gate)`.
    pub gate: Option<Strided<'a, B>>,
    /// `[num_tokens][num_q_heads·value_dim]`.
    pub out: &'a B::Buffer,
}

/// What attention adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttnValues {
    /// The values beside the keys, which have as many elements.
    Own,
    /// The first elements of each key: the latent of multi-head latent attention.
    OfKey(usize),
}

// === impl AttnPaged ===

impl<B: DeviceTypes> AttnPaged<'_, B> {
    /// # Panics
    /// When a buffer is too small, of another dtype, or shared where it must not be.
    pub(crate) fn check(&self, activations: DType) {
        let Self {
            q,
            q_row_stride: _,
            num_q_heads,
            scale: _,
            batch,
            kv,
            kv_scales,
            layer: _,
            window,
            sinks,
            softcap: _,
            values,
            gate,
            out,
        } = *self;
        let (rows, seqs, words) = (batch.num_tokens, batch.num_seqs, [DType::U32]);
        let row_len = num_q_heads * kv.head_dim;
        let out_len = num_q_heads * self.value_dim();
        match values {
            AttnValues::Own => assert!(kv.tensors == 2, "attention to a pool without values"),
            AttnValues::OfKey(len) => assert!(
                (1..=kv.head_dim).contains(&len),
                "values of {len} elements in keys of {}",
                kv.head_dim
            ),
        }
        assert!(
            num_q_heads > 0 && num_q_heads.is_multiple_of(kv.num_kv_heads),
            "{num_q_heads} query heads are no multiple of {} KV heads",
            kv.num_kv_heads
        );
        kv_scales.check(kv.dtype);
        assert!(window != Some(0), "attention over a window of no key");
        self.q_rows()
            .expect_rows("attn q", activations, rows, row_len);
        out.expect_elements("attn out", &[activations], rows * out_len);
        out.expect_apart("attn out", &[q]);
        if let Some(sinks) = sinks {
            sinks.expect_elements("attn sinks", &[DType::F32], num_q_heads);
            out.expect_apart("attn out", &[sinks]);
        }
        if let Some(gate) = gate {
            gate.expect_rows("attn gate", activations, rows, out_len);
            out.expect_apart("attn out", &[gate.values]);
        }
        let table_len = seqs * batch.page_table_stride;
        batch.q_indptr.expect_elements("q_indptr", &words, seqs + 1);
        batch.kv_lens.expect_elements("kv_lens", &words, seqs);
        batch
            .page_table
            .expect_elements("page_table", &words, table_len);
    }

    /// Elements of a value, and of a head of the result.
    pub(crate) fn value_dim(&self) -> usize {
        match self.values {
            AttnValues::Own => self.kv.head_dim,
            AttnValues::OfKey(len) => len,
        }
    }

    fn q_rows(&self) -> Strided<'_, B> {
        Strided {
            values: self.q,
            row_stride: self.q_row_stride,
        }
    }

    /// Elements of `q` up to the last row's last.
    pub(crate) fn q_len(&self) -> usize {
        let row_len = self.num_q_heads * self.kv.head_dim;
        self.q_rows().len(self.batch.num_tokens, row_len)
    }

    pub(crate) fn features(&self) -> impl Iterator<Item = OpFeature> + use<B> {
        let used = [
            (self.window.is_some(), OpFeature::AttnWindow),
            (self.sinks.is_some(), OpFeature::AttnSinks),
            (self.softcap.is_some(), OpFeature::AttnSoftCap),
            (self.gate.is_some(), OpFeature::AttnGate),
            (self.values != AttnValues::Own, OpFeature::LatentAttention),
        ];
        used.into_iter()
            .filter(|(used, _)| *used)
            .map(|(_, feature)| feature)
    }
}
