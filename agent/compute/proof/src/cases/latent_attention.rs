//! Attention over the latents of sequences whose pages lie scattered in the pool.

use super::attention::{batch_of, page_table};
use super::{Subject, rounded, values};
use pd_compute::{AttnPaged, AttnValues, Backend, DType, KvCutView, KvGroupView, KvScales, Reach};

/// Sequences, and the queries at their ends.
#[derive(Clone, Debug)]
pub struct LatentAttnCase {
    /// Latents of each sequence, and how many of the last are queries.
    pub seqs: Vec<(usize, usize)>,
    pub page_size: usize,
    pub heads: usize,
    pub latent_dim: usize,
    pub rope_dim: usize,
    /// Of queries and latents.
    pub dtype: DType,
}

// === impl LatentAttnCase ===

impl LatentAttnCase {
    fn head_dim(&self) -> usize {
        self.latent_dim + self.rope_dim
    }

    /// Latents, the rest of the pool being NaN.
    fn pool<B: Backend>(
        &self,
        subject: &Subject<B>,
        (table, stride, num_pages): &(Vec<u32>, usize, usize),
    ) -> KvGroupView<B> {
        let (dim, page_size) = (self.head_dim(), self.page_size);
        let num_pages = *num_pages;
        let mut pool = vec![f32::NAN; num_pages * page_size * dim];
        for (seq, (keys, _)) in self.seqs.iter().enumerate() {
            for key in 0..*keys {
                let page = table[seq * stride + key / page_size] as usize;
                let slot = page * page_size + key % page_size;
                let latent = values(7_000_000 + (seq * 10_000 + key) as u64, dim);
                let latent = rounded(self.dtype, latent.into_iter().map(|v| 3.0 * v).collect());
                pool[slot * dim..][..dim].copy_from_slice(&latent);
            }
        }
        let region =
            subject
                .backend
                .alloc_exportable("pool", self.dtype, pool.len(), Reach::Process);
        let region = region.expect("test pools fit");
        subject.write(&region, &pool);
        let cut = KvCutView::page_first(region, 0..1, 1, 1, page_size, dim);
        KvGroupView {
            dtype: self.dtype,
            page_size,
            num_pages,
            num_kv_heads: 1,
            head_dim: dim,
            tensors: 1,
            cuts: [cut].into(),
        }
    }

    /// Outputs of the queries, `[query][head][latent_dim]`. A query depends on its sequence and position only.
    pub fn run<B: Backend>(&self, subject: &Subject<B>) -> Vec<f32> {
        let width = self.heads * self.head_dim();
        let row_stride = width + 8;
        let mut q = Vec::new();
        for (seq, (keys, queries)) in self.seqs.iter().enumerate() {
            for position in keys - queries..*keys {
                let seed = 10_000 * (seq as u64 + 1) + position as u64;
                q.extend(rounded(self.dtype, values(seed, width)));
                q.resize(q.len() + row_stride - width, f32::NAN);
            }
        }
        let pages = page_table(&self.seqs, self.page_size);
        let kv = self.pool(subject, &pages);
        let batch = batch_of(subject, &self.seqs, &pages.0, pages.1);
        let out = subject.activations(&vec![9.0; batch.num_tokens * self.heads * self.latent_dim]);
        #[allow(clippy::cast_precision_loss, reason = "test values are small")]
        let scale = 2.0 / (self.head_dim() as f32).sqrt();
        subject.backend.attn_paged(AttnPaged {
            q: &subject.activations(&q),
            q_row_stride: row_stride,
            num_q_heads: self.heads,
            scale,
            batch: &batch,
            kv: &kv,
            kv_scales: KvScales::ONE,
            layer: 0,
            window: None,
            sinks: None,
            softcap: None,
            values: AttnValues::OfKey(self.latent_dim),
            gate: None,
            out: &out,
        });
        subject.read(&out)
    }
}
