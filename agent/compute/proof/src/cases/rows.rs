//! Ops on rows: embedding, norm, rotary table, gathering, and the qkv preparation.

use super::attention::KvShape;
use super::{Subject, matrix, rounded, values};
use pd_compute::{
    Backend, BatchView, DType, Embed, GatherRows, KvGroupView, KvScales, NO_ROW, QkvPrep, RmsNorm,
    RopeTable, WriteMode,
};

/// Rows of an embedding table.
pub fn embed<B: Backend>(
    subject: &Subject<B>,
    vocab: usize,
    hidden: usize,
    scale: Option<f32>,
    ids: &[u32],
) -> Vec<f32> {
    let table = values(1, vocab * hidden);
    let source = matrix("embed", hidden, &table);
    let table = subject.backend.pack_embedding(&source).expect("it fits");
    let out = subject.zeros(subject.dtype(), ids.len() * hidden);
    subject.backend.embed(Embed {
        table: &table,
        token_ids: &subject.words(ids),
        out: &out,
        scale,
        rows: ids.len(),
    });
    subject.read(&out)
}

/// A norm that is added to what was in its output. Inputs as `dtype` holds them.
pub fn added_norm<B: Backend>(
    subject: &Subject<B>,
    dtype: DType,
    (rows, hidden): (usize, usize),
) -> Vec<f32> {
    let input = |seed| rounded(dtype, values(seed, rows * hidden));
    let out = subject.activations(&input(2));
    subject.backend.rms_norm(RmsNorm {
        x: &subject.activations(&input(1)),
        add: None,
        weight: &subject.floats(&values(3, hidden)),
        eps: 1e-6,
        out: &out,
        into: WriteMode::Add,
        rows,
    });
    subject.read(&out)
}

/// The norm and, where something was added, the stream it was added to. Inputs as `dtype` holds them.
pub fn rms_norm<B: Backend>(
    subject: &Subject<B>,
    dtype: DType,
    (rows, hidden): (usize, usize),
    adds: bool,
    in_place: bool,
) -> (Vec<f32>, Vec<f32>) {
    let input = |seed| rounded(dtype, values(seed, rows * hidden));
    let x = subject.activations(&input(1));
    let add = adds.then(|| subject.activations(&input(2)));
    let out = if in_place {
        x.clone()
    } else {
        subject.zeros(subject.dtype(), rows * hidden)
    };
    subject.backend.rms_norm(RmsNorm {
        x: &x,
        add: add.as_ref(),
        weight: &subject.floats(&values(3, hidden)),
        eps: 1e-6,
        out: &out,
        into: WriteMode::Store,
        rows,
    });
    (subject.read(&out), subject.read(&x))
}

pub fn rope_table<B: Backend>(subject: &Subject<B>, positions: &[u32], half: usize) -> Vec<f32> {
    #[allow(clippy::cast_precision_loss, reason = "test values are small")]
    let inv_freq: Vec<f32> = (0..half)
        .map(|i| 1e6f32.powf(-(i as f32) / half as f32))
        .collect();
    let out = subject.zeros(DType::F32, positions.len() * 2 * half);
    subject.backend.rope_table(RopeTable {
        positions: &subject.words(positions),
        inv_freq: &subject.floats(&inv_freq),
        factor: 1.25,
        out: &out,
        rows: positions.len(),
    });
    subject.read(&out)
}

/// Rows of words; one place of `out` stays as it was.
pub fn gather_rows<B: Backend>(subject: &Subject<B>, row_len: usize) -> Vec<u32> {
    let src: Vec<u32> = (100..).take(5 * row_len).collect();
    let out = subject.words(&vec![7; 3 * row_len]);
    subject.backend.gather_rows(GatherRows {
        src: &subject.words(&src),
        indices: &subject.words(&[4, NO_ROW, 0]),
        out: &out,
        row_len,
        rows: 3,
    });
    subject.read_words(&out)
}

/// A call of `qkv_prep`.
#[derive(Clone, Copy, Debug)]
pub struct QkvCase {
    pub kv: KvShape,
    pub num_q_heads: usize,
    pub rotary_dim: usize,
    /// Elements of a row after q, k and v.
    pub following: usize,
    pub has_bias: bool,
    pub has_norms: bool,
    /// Of activations.
    pub dtype: DType,
    pub kv_dtype: DType,
}

/// The rotated queries, and the whole pool.
pub fn qkv_prep<B: Backend>(subject: &Subject<B>, case: &QkvCase) -> (Vec<f32>, Vec<f32>) {
    let QkvCase {
        kv: shape,
        num_q_heads,
        rotary_dim,
        following,
        has_bias,
        has_norms,
        dtype,
        kv_dtype,
    } = *case;
    let kv: KvGroupView<B> = shape.pool(subject, kv_dtype);
    let slots = [
        0,
        u32::try_from(shape.num_slots() - 1).expect("small"),
        pd_compute::NO_SLOT,
        5,
    ];
    let rows = slots.len();
    let heads = num_q_heads + 2 * shape.num_kv_heads;
    let row_len = heads * shape.head_dim;
    let qkv = subject.activations(&rounded(dtype, values(1, rows * (row_len + following))));
    let floats = |seed, len| subject.floats(&values(seed, len));
    let bias = has_bias.then(|| floats(2, row_len));
    let norms = has_norms.then(|| (floats(3, shape.head_dim), floats(4, shape.head_dim)));
    let one = subject.words(&[0, 1, 2, 3, 4]);
    let batch = BatchView {
        num_tokens: rows,
        num_seqs: rows,
        token_ids: one.clone(),
        positions: one.clone(),
        q_indptr: one.clone(),
        kv_lens: one.clone(),
        page_table: one,
        page_table_stride: 1,
        out_slots: subject.words(&slots),
    };
    subject.backend.qkv_prep(QkvPrep {
        qkv: &qkv,
        row_stride: row_len + following,
        bias: bias.as_ref(),
        q_norm: norms.as_ref().map(|norms| &norms.0),
        k_norm: norms.as_ref().map(|norms| &norms.1),
        eps: 1e-6,
        rope: &floats(5, rows * rotary_dim),
        rotary_dim,
        num_q_heads,
        batch: &batch,
        kv: &kv,
        // Of E4M3, some keys and no values lie beyond.
        kv_scales: KvScales { k: 0.003, v: 0.75 }.of_pool(kv_dtype),
        layer: shape.num_layers - 1,
    });
    let queries = subject.read(&qkv);
    let queries = queries
        .chunks(row_len + following)
        .flat_map(|row| row[..num_q_heads * shape.head_dim].to_vec());
    (queries.collect(), subject.read(&kv.cuts[0].region))
}
