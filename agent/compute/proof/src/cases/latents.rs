//! Latent attention: from the products of a prompt's rows to what heads make of its latents.

use super::{Subject, matrix, rounded, values};
use pd_compute::{
    AttnPaged, AttnValues, Backend, BatchView, DType, HeadLinear, HeadRows, KvCutView, KvGroupView,
    KvScales, MlaPrep, Packing, Reach, RopeTable,
};

/// One sequence, all of whose rows are queries.
#[derive(Clone, Copy, Debug)]
pub struct LatentsCase {
    pub rows: usize,
    pub heads: usize,
    pub nope_dim: usize,
    pub rope_dim: usize,
    pub latent_dim: usize,
    pub v_dim: usize,
    /// Of rows and weights.
    pub dtype: DType,
    pub kv_dtype: DType,
}

/// What became of it.
#[derive(Debug)]
pub struct Attended {
    /// The pool: latents and keys.
    pub pool: Vec<f32>,
    /// `[rows][heads][v_dim]`.
    pub out: Vec<f32>,
}

const PAGE_SIZE: usize = 16;

// === impl LatentsCase ===

impl LatentsCase {
    fn head_dim(&self) -> usize {
        self.latent_dim + self.rope_dim
    }

    /// Of E4M3, some of the largest lie beyond.
    fn kv_scales(&self) -> KvScales {
        KvScales { k: 0.003, v: 0.003 }.of_pool(self.kv_dtype)
    }

    /// Those of a product, which are all of about one.
    fn activations<B: Backend>(&self, subject: &Subject<B>, seed: u64, len: usize) -> B::Buffer {
        subject.activations(&rounded(self.dtype, values(seed, self.rows * len)))
    }

    /// An `n × k` matrix of each head.
    fn weight<B: Backend>(
        &self,
        subject: &Subject<B>,
        seed: u64,
        (n, k): (usize, usize),
    ) -> B::Weight {
        let weights: Vec<Vec<f32>> = (0..self.heads)
            .map(|head| rounded(self.dtype, values(seed + head as u64, n * k)))
            .collect();
        let parts = weights.iter().map(|weight| matrix("heads", k, weight));
        let packed = subject
            .backend
            .pack_linear(&parts.collect::<Vec<_>>(), Packing::JOINED);
        packed.expect("the weights fit")
    }

    fn pool<B: Backend>(&self, subject: &Subject<B>) -> KvGroupView<B> {
        let num_pages = self.rows.div_ceil(PAGE_SIZE);
        let len = num_pages * PAGE_SIZE * self.head_dim();
        let region = subject
            .backend
            .alloc_exportable("pool", self.kv_dtype, len, Reach::Process);
        let region = region.expect("test pools fit");
        let cut = KvCutView::page_first(region, 0..1, 1, 1, PAGE_SIZE, self.head_dim());
        KvGroupView {
            dtype: self.kv_dtype,
            page_size: PAGE_SIZE,
            num_pages,
            num_kv_heads: 1,
            head_dim: self.head_dim(),
            tensors: 1,
            cuts: [cut].into(),
        }
    }

    /// Pages from the last to the first, and a slot of its own for each row.
    fn batch<B: Backend>(&self, subject: &Subject<B>) -> BatchView<B> {
        let count = |len: usize| -> Vec<u32> { (0..u32::try_from(len).expect("small")).collect() };
        let rows = count(self.rows);
        let len = u32::try_from(self.rows).expect("small");
        let mut pages = count(self.rows.div_ceil(PAGE_SIZE));
        pages.reverse();
        let page_size = u32::try_from(PAGE_SIZE).expect("small");
        let slot_of = |row: &u32| pages[(row / page_size) as usize] * page_size + row % page_size;
        let slots: Vec<u32> = rows.iter().map(slot_of).collect();
        BatchView {
            num_tokens: self.rows,
            num_seqs: 1,
            token_ids: subject.words(&vec![0; self.rows]),
            positions: subject.words(&rows),
            q_indptr: subject.words(&[0, len]),
            kv_lens: subject.words(&[len]),
            page_table: subject.words(&pages),
            page_table_stride: pages.len(),
            out_slots: subject.words(&slots),
        }
    }

    /// What [`MlaPrep`] does with the products.
    fn prepare<B: Backend>(
        &self,
        subject: &Subject<B>,
        (kv, batch): (&KvGroupView<B>, &BatchView<B>),
        (q, q_out): (&B::Buffer, &B::Buffer),
    ) {
        let (rows, rope_dim) = (self.rows, self.rope_dim);
        let rope = subject.zeros(DType::F32, rows * rope_dim);
        subject.backend.rope_table(RopeTable {
            positions: &batch.positions,
            inv_freq: &subject.floats(&vec![0.3; rope_dim / 2]),
            factor: 1.0,
            out: &rope,
            rows,
        });
        subject.backend.mla_prep(MlaPrep {
            q,
            num_heads: self.heads,
            nope_dim: self.nope_dim,
            latent: &self.activations(subject, 2, self.head_dim()),
            norm: &subject.floats(&values(3, self.latent_dim)),
            eps: 1e-6,
            rope: &rope,
            batch,
            kv,
            layer: 0,
            kv_scales: self.kv_scales(),
            q_out,
        });
    }

    /// Runs all ops of such a layer between its first and its last products.
    ///
    /// # Panics
    /// When there is no memory for it.
    pub fn run<B: Backend>(&self, subject: &Subject<B>) -> Attended {
        let Self {
            rows,
            heads,
            nope_dim,
            rope_dim,
            latent_dim,
            v_dim,
            ..
        } = *self;
        let (q_dim, head_dim, backend) = (nope_dim + rope_dim, self.head_dim(), &subject.backend);
        let (kv, batch) = (self.pool(subject), self.batch(subject));
        let zeros = |len| subject.zeros(subject.dtype(), rows * heads * len);
        let (q, absorbed) = (self.activations(subject, 1, heads * q_dim), zeros(head_dim));
        let (attended, out) = (zeros(latent_dim), zeros(v_dim));
        self.prepare(subject, (&kv, &batch), (&q, &absorbed));
        let heads_of = |values, head_stride| HeadRows {
            values,
            head_stride,
        };
        backend.head_linear(HeadLinear {
            x: heads_of(&q, q_dim),
            weight: &self.weight(subject, 100, (latent_dim, nope_dim)),
            heads,
            out: heads_of(&absorbed, head_dim),
            rows,
        });
        backend.attn_paged(AttnPaged {
            q: &absorbed,
            q_row_stride: heads * head_dim,
            num_q_heads: heads,
            scale: 0.2,
            batch: &batch,
            kv: &kv,
            kv_scales: self.kv_scales(),
            layer: 0,
            window: None,
            sinks: None,
            softcap: None,
            values: AttnValues::OfKey(latent_dim),
            gate: None,
            out: &attended,
        });
        backend.head_linear(HeadLinear {
            x: heads_of(&attended, latent_dim),
            weight: &self.weight(subject, 200, (v_dim, latent_dim)),
            heads,
            out: heads_of(&out, v_dim),
            rows,
        });
        Attended {
            pool: subject.read(&kv.cuts[0].region),
            out: subject.read(&out),
        }
    }
}
