//! Softmax over the pages of each sequence.

use crate::ops::{AttnPaged, BatchView};
use crate::tch::handle::TchBackend;
use crate::tch::kv_layer::layer_of;
use crate::tch::memory::{index_tensor, int, shape_of};
use tch::{Kind, Tensor};

pub(in crate::tch) fn attn_paged(op: AttnPaged<'_, TchBackend>) -> Result<(), String> {
    let AttnPaged {
        q,
        q_row_stride,
        num_q_heads,
        scale,
        batch,
        kv,
        layer,
        out,
    } = op;
    let (rows, head_dim) = (batch.num_tokens, kv.head_dim);
    let shape = [rows, num_q_heads, head_dim];
    let q = q.strided("q", 0, shape, [q_row_stride, head_dim, 1]);
    let q = q.to_kind(Kind::Float);
    let out = out.view("attn_paged out", shape);
    let [keys, values] = layer_of(kv, layer);
    for Sequence { rows, len, pages } in sequences(batch, kv.page_size)? {
        let pages = index_tensor(&pages, "page", "the pool", kv.num_pages, out.device())?;
        let (first, q_len) = (int(rows.start), int(rows.len()));
        let attended = attend(
            &q.narrow(0, first, q_len),
            &gathered(&keys, &pages, len),
            &gathered(&values, &pages, len),
            scale,
        );
        out.narrow(0, first, q_len).copy_(&attended);
    }
    Ok(())
}

/// What the step has of one sequence.
struct Sequence {
    /// Of the queries, not empty.
    rows: std::ops::Range<usize>,
    /// Keys.
    len: i64,
    /// Those that hold the keys.
    pages: Vec<u32>,
}

/// The sequences that have queries.
fn sequences(batch: &BatchView<TchBackend>, page_size: usize) -> Result<Vec<Sequence>, String> {
    let (num_seqs, stride) = (batch.num_seqs, batch.page_table_stride);
    let starts = batch.q_indptr.words("q_indptr", num_seqs + 1)?;
    let lens = batch.kv_lens.words("kv_lens", num_seqs)?;
    let table = batch.page_table.words("page_table", num_seqs * stride)?;
    let mut sequences = Vec::new();
    for (seq, len) in lens.into_iter().enumerate() {
        let rows = starts[seq] as usize..starts[seq + 1] as usize;
        let len = len as usize;
        if rows.end > batch.num_tokens || rows.len() > len {
            return Err(format!(
                "sequence {seq} has {len} keys and the rows {rows:?} of {}",
                batch.num_tokens
            ));
        }
        let pages = table[seq * stride..(seq + 1) * stride].get(..len.div_ceil(page_size));
        let pages = pages.ok_or_else(|| {
            format!("sequence {seq} has {len} keys, more than its {stride} pages hold")
        })?;
        if !rows.is_empty() {
            sequences.push(Sequence {
                rows,
                len: int(len),
                pages: pages.to_vec(),
            });
        }
    }
    Ok(sequences)
}

/// The first `len` keys or values on `pages`, `F32 [kv_head][len][head_dim]`.
fn gathered(cache: &Tensor, pages: &Tensor, len: i64) -> Tensor {
    let [_, num_kv_heads, _, head_dim] = shape_of(cache);
    let pages = cache.index_select(0, pages).permute([1, 0, 2, 3]);
    let in_order = pages.reshape([num_kv_heads, -1, head_dim]);
    in_order.narrow(1, 0, len).to_kind(Kind::Float)
}

/// `[query][head][head_dim]` of queries that are the last of `len` tokens, over `[kv_head][len][head_dim]`.
fn attend(q: &Tensor, k: &Tensor, v: &Tensor, scale: f32) -> Tensor {
    let [q_len, num_q_heads, head_dim] = shape_of(q);
    let [num_kv_heads, len, _] = shape_of(k);
    let group = num_q_heads / num_kv_heads;
    let q = q
        .permute([1, 0, 2])
        .reshape([num_kv_heads, group, q_len, head_dim]);
    let scores = q.matmul(&k.unsqueeze(1).transpose(2, 3)) * f64::from(scale);
    let unseen = Tensor::ones([q_len, len], (Kind::Bool, q.device())).triu(len - q_len + 1);
    let weights = scores
        .masked_fill(&unseen, f64::NEG_INFINITY)
        .softmax(-1, Kind::Float);
    let out = weights.matmul(&v.unsqueeze(1));
    out.reshape([num_q_heads, q_len, head_dim])
        .permute([1, 0, 2])
}
