//! Paged attention over sequences whose pages lie scattered in the pool.

use super::{Subject, rounded, values};
use pd_compute::{
    AttnPaged, AttnValues, Backend, BatchView, DType, KvCutView, KvGroupView, KvScales, NO_SLOT,
    Reach, Strided,
};
use std::ops::Range;

/// A pool of one cut, page-first.
#[derive(Clone, Copy, Debug)]
pub struct KvShape {
    pub num_pages: usize,
    pub page_size: usize,
    pub num_kv_heads: usize,
    pub head_dim: usize,
    pub num_layers: usize,
}

/// Sequences, and the queries at their ends.
#[derive(Clone, Debug)]
pub struct AttnCase {
    /// Keys of each sequence, and how many of the last are queries.
    pub seqs: Vec<(usize, usize)>,
    pub page_size: usize,
    pub num_kv_heads: usize,
    /// Query heads per KV head.
    pub group: usize,
    pub head_dim: usize,
    /// Of queries.
    pub dtype: DType,
    pub kv_dtype: DType,
    pub form: AttnForm,
}

/// What attention has beyond a causal mask.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttnForm {
    pub window: Option<usize>,
    pub softcap: Option<f32>,
    pub has_sinks: bool,
    pub has_gate: bool,
    /// Whether scores lie so far apart that those of later keys outweigh all before.
    pub is_sharp: bool,
}

/// In the page table, of a page that holds no key that a query sees.
const GIVEN_AWAY: u32 = u32::MAX;

/// Of sequences, the pages of each, how many a sequence has at most, and those of the pool. Sequences' pages lie in turn, from
/// the pool's end: neighbours in a sequence never are neighbours.
pub(super) fn page_table(seqs: &[(usize, usize)], page_size: usize) -> (Vec<u32>, usize, usize) {
    let stride = seqs.iter().map(|(keys, _)| keys.div_ceil(page_size));
    let stride = stride.max().unwrap_or(0).max(1);
    let num_pages = stride * seqs.len() + 1;
    let page = |seq: usize, i: usize| num_pages - 1 - (i * seqs.len() + seq);
    let table = (0..seqs.len())
        .flat_map(|seq| (0..stride).map(move |i| (seq, i)))
        .map(|(seq, i)| u32::try_from(page(seq, i)).expect("small"));
    (table.collect(), stride, num_pages)
}

/// A step of sequences' last tokens, whose keys are in the pool already.
pub(super) fn batch_of<B: Backend>(
    subject: &Subject<B>,
    seqs: &[(usize, usize)],
    page_table: &[u32],
    stride: usize,
) -> BatchView<B> {
    let word = |value: usize| u32::try_from(value).expect("small");
    let mut q_indptr = vec![0];
    for (_, queries) in seqs {
        q_indptr.push(q_indptr[q_indptr.len() - 1] + word(*queries));
    }
    let rows = q_indptr[seqs.len()] as usize;
    let lens: Vec<u32> = seqs.iter().map(|(keys, _)| word(*keys)).collect();
    BatchView {
        num_tokens: rows,
        num_seqs: seqs.len(),
        token_ids: subject.words(&vec![0; rows]),
        positions: subject.words(&vec![0; rows]),
        q_indptr: subject.words(&q_indptr),
        kv_lens: subject.words(&lens),
        page_table: subject.words(page_table),
        page_table_stride: stride,
        out_slots: subject.words(&vec![NO_SLOT; rows]),
    }
}

// === impl KvShape ===

impl KvShape {
    pub fn num_slots(&self) -> usize {
        self.num_pages * self.page_size
    }

    fn page_elements(&self) -> usize {
        self.num_layers * self.num_kv_heads * 2 * self.page_size * self.head_dim
    }

    pub fn pool<B: Backend>(&self, subject: &Subject<B>, dtype: DType) -> KvGroupView<B> {
        let len = self.num_pages * self.page_elements();
        let region = subject
            .backend
            .alloc_exportable("pool", dtype, len, Reach::Process);
        let region = region.expect("test pools fit");
        let cut = KvCutView::page_first(
            region,
            0..self.num_layers,
            2,
            self.num_kv_heads,
            self.page_size,
            self.head_dim,
        );
        KvGroupView {
            dtype,
            page_size: self.page_size,
            num_pages: self.num_pages,
            num_kv_heads: self.num_kv_heads,
            head_dim: self.head_dim,
            tensors: 2,
            cuts: [cut].into(),
        }
    }
}

// === impl AttnCase ===

impl AttnCase {
    /// How much further off results may be than others': larger scores have larger errors, which show in f32.
    pub fn tolerance(&self) -> f32 {
        if self.form.is_sharp && self.dtype == DType::F32 {
            8.0
        } else {
            1.0
        }
    }

    /// Outputs of the queries, `[query][head][head_dim]`.
    pub fn run<B: Backend>(&self, subject: &Subject<B>) -> Vec<f32> {
        let (page_table, stride, num_pages) = page_table(&self.seqs, self.page_size);
        let shape = KvShape {
            num_pages,
            page_size: self.page_size,
            num_kv_heads: self.num_kv_heads,
            head_dim: self.head_dim,
            num_layers: 2,
        };
        let kv = shape.pool(subject, self.kv_dtype);
        self.fill(subject, &kv, &page_table, stride);
        let page_table = self.without_unseen(page_table, stride);
        let width = self.num_kv_heads * self.group * self.head_dim;
        // As in a qkv row: something follows the queries.
        let row_stride = width + 2 * self.num_kv_heads * self.head_dim;
        let mut q = Vec::new();
        for (seq, (keys, queries)) in self.seqs.iter().enumerate() {
            for position in keys - queries..*keys {
                q.extend(self.query(seq, position, width));
                q.resize(q.len() + row_stride - width, f32::NAN);
            }
        }
        let rows = q.len() / row_stride;
        let batch = batch_of(subject, &self.seqs, &page_table, stride);
        let out = subject.zeros(subject.dtype(), rows * width);
        #[allow(clippy::cast_precision_loss, reason = "test values are small")]
        let scale = 1.0 / (self.head_dim as f32).sqrt();
        let form = self.form;
        let scale = if form.is_sharp { 8.0 * scale } else { scale };
        let sinks = subject.floats(&values(5, self.num_kv_heads * self.group));
        // Within wider rows, as the queries are.
        let gates = values(6, rows * row_stride);
        let gates = gates.into_iter().map(|v| 4.0 * v).collect();
        let gates = subject.activations(&rounded(self.dtype, gates));
        subject.backend.attn_paged(AttnPaged {
            q: &subject.activations(&q),
            q_row_stride: row_stride,
            num_q_heads: self.num_kv_heads * self.group,
            scale,
            batch: &batch,
            kv: &kv,
            kv_scales: KvScales { k: 0.5, v: 1.5 }.of_pool(self.kv_dtype),
            layer: 1,
            window: form.window,
            sinks: form.has_sinks.then_some(&sinks),
            softcap: form.softcap,
            values: AttnValues::Own,
            gate: form.has_gate.then_some(Strided {
                values: &gates,
                row_stride,
            }),
            out: &out,
        });
        subject.read(&out)
    }

    /// The table without the pages before all queries' windows.
    fn without_unseen(&self, mut page_table: Vec<u32>, stride: usize) -> Vec<u32> {
        let window = self.form.window.unwrap_or(usize::MAX);
        let rows = page_table.chunks_exact_mut(stride);
        for (row, (keys, queries)) in rows.zip(&self.seqs) {
            let first_seen = (keys - queries + 1).saturating_sub(window);
            row[..first_seen / self.page_size].fill(GIVEN_AWAY);
        }
        page_table
    }

    /// A query depends on its sequence and position only, not on what is asked beside it.
    fn query(&self, seq: usize, position: usize, width: usize) -> Vec<f32> {
        let seed = 10_000 * (seq as u64 + 1) + position as u64;
        rounded(self.dtype, values(seed, width))
    }

    /// Keys and values, the rest of the pool being NaN.
    fn fill<B: Backend>(
        &self,
        subject: &Subject<B>,
        kv: &KvGroupView<B>,
        page_table: &[u32],
        stride: usize,
    ) {
        let (cut, layer) = kv.cut_of(1);
        let mut pool = vec![f32::NAN; kv.num_pages * cut.page_stride];
        for (seq, (keys, _)) in self.seqs.iter().enumerate() {
            for key in 0..*keys {
                let page = page_table[seq * stride + key / self.page_size] as usize;
                for head in 0..self.num_kv_heads {
                    for kind in 0..2 {
                        let at = page * cut.page_stride
                            + head * cut.head_stride
                            + layer * cut.layer_stride
                            + kind * cut.kv_stride
                            + key % self.page_size * cut.slot_stride;
                        let place: Range<usize> = at..at + self.head_dim;
                        let seed = ((seq * 10_000 + key) * 64 + head) * 2 + kind;
                        let scaled = values(7_000_000 + seed as u64, self.head_dim);
                        let scaled = scaled.into_iter().map(|v| 3.0 * v).collect();
                        pool[place].copy_from_slice(&rounded(self.kv_dtype, scaled));
                    }
                }
            }
        }
        subject.write(&cut.region, &pool);
    }
}
