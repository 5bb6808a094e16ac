//! Attention over the latents of sequences whose pages lie scattered in the pool.

use super::{Subject, rounded, values};
use pd_compute::{
    AttnPaged, AttnValues, Backend, BatchView, DType, KvCutView, KvGroupView, KvScales, NO_SLOT,
    Reach,
};

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

    /// Pages of a sequence at most.
    fn stride(&self) -> usize {
        let pages = self
            .seqs
            .iter()
            .map(|(keys, _)| keys.div_ceil(self.page_size));
        pages.max().unwrap_or(0).max(1)
    }

    /// Sequences' pages lie in turn, from the pool's end.
    fn page(&self, seq: usize, index: usize) -> usize {
        self.stride() * self.seqs.len() - (index * self.seqs.len() + seq)
    }

    /// Latents, the rest of the pool being NaN.
    fn pool<B: Backend>(&self, subject: &Subject<B>) -> KvGroupView<B> {
        let (dim, page_size) = (self.head_dim(), self.page_size);
        let num_pages = self.stride() * self.seqs.len() + 1;
        let mut pool = vec![f32::NAN; num_pages * page_size * dim];
        for (seq, (keys, _)) in self.seqs.iter().enumerate() {
            for key in 0..*keys {
                let slot = self.page(seq, key / page_size) * page_size + key % page_size;
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

    fn batch<B: Backend>(&self, subject: &Subject<B>) -> BatchView<B> {
        let word = |value: usize| u32::try_from(value).expect("small");
        let stride = self.stride();
        let mut q_indptr = vec![0];
        for (_, queries) in &self.seqs {
            q_indptr.push(q_indptr[q_indptr.len() - 1] + word(*queries));
        }
        let rows = q_indptr[self.seqs.len()] as usize;
        let lens: Vec<u32> = self.seqs.iter().map(|(keys, _)| word(*keys)).collect();
        let table = (0..self.seqs.len()).flat_map(|seq| (0..stride).map(move |i| (seq, i)));
        let table: Vec<u32> = table.map(|(seq, i)| word(self.page(seq, i))).collect();
        BatchView {
            num_tokens: rows,
            num_seqs: self.seqs.len(),
            token_ids: subject.words(&vec![0; rows]),
            positions: subject.words(&vec![0; rows]),
            q_indptr: subject.words(&q_indptr),
            kv_lens: subject.words(&lens),
            page_table: subject.words(&table),
            page_table_stride: stride,
            out_slots: subject.words(&vec![NO_SLOT; rows]),
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
        let (kv, batch) = (self.pool(subject), self.batch(subject));
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
