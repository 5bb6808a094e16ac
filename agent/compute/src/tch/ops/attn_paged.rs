//! Softmax over the pages of each sequence.

use crate::ops::{AttnPaged, AttnValues, BatchView};
use crate::tch::handle::TchBackend;
use crate::tch::kv_layer::layer_of;
use crate::tch::memory::{index_tensor, int, shape_of};
use std::ops::Range;
use tch::{Kind, Tensor};

pub(in crate::tch) fn attn_paged(op: AttnPaged<'_, TchBackend>) -> Result<(), String> {
    let value_dim = op.value_dim();
    let AttnPaged {
        q,
        q_row_stride,
        num_q_heads,
        scale,
        batch,
        kv,
        kv_scales: _,
        layer,
        window,
        sinks,
        softcap,
        values,
        gate,
        out,
    } = op;
    let (rows, head_dim) = (batch.num_tokens, kv.head_dim);
    let shape = [rows, num_q_heads, head_dim];
    let q = q.strided("q", 0, shape, [q_row_stride, head_dim, 1]);
    let q = q.to_kind(Kind::Float);
    let out_shape = [rows, num_q_heads, value_dim];
    let out = out.view("attn_paged out", out_shape);
    let tensors = layer_of(kv, layer);
    let keys = &tensors[0];
    let values = match values {
        AttnValues::Own => tensors[1].shallow_clone(),
        AttnValues::OfKey(len) => keys.narrow(3, 0, int(len)),
    };
    // A wider one would see no more.
    let window = window.map(|window| window.min(kv.num_pages * kv.page_size));
    let scores = Scores {
        scale,
        window,
        softcap,
        sinks: sinks.map(|sinks| sinks.view("attn sinks", [num_q_heads])),
    };
    let gate = gate.map(|gate| {
        let strides = [gate.row_stride, value_dim, 1];
        let gate = gate.values.strided("attn gate", 0, out_shape, strides);
        gate.to_kind(Kind::Float).sigmoid()
    });
    for Sequence { rows, len, pages } in sequences(batch, kv.page_size)? {
        let (first, q_len) = (int(rows.start), int(rows.len()));
        // Of the first query; keys before it may have been given away.
        let seen = window.map_or(0, |window| (len + 1).saturating_sub(rows.len() + window));
        let page = seen / kv.page_size;
        let device = out.device();
        let pages = index_tensor(&pages[page..], "page", "the pool", kv.num_pages, device)?;
        let span = seen - page * kv.page_size..len - page * kv.page_size;
        let attended = scores.attend(
            &q.narrow(0, first, q_len),
            &gathered(keys, &pages, &span),
            &gathered(&values, &pages, &span),
        );
        let result = match &gate {
            Some(gate) => attended * gate.narrow(0, first, q_len),
            None => attended,
        };
        out.narrow(0, first, q_len).copy_(&result);
    }
    Ok(())
}

/// What the step has of one sequence.
struct Sequence {
    /// Of the queries, not empty.
    rows: Range<usize>,
    /// Keys.
    len: usize,
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
                len,
                pages: pages.to_vec(),
            });
        }
    }
    Ok(sequences)
}

/// The keys or values of `span` on `pages`, `F32 [kv_head][len][head_dim]`.
fn gathered(cache: &Tensor, pages: &Tensor, span: &Range<usize>) -> Tensor {
    let [_, num_kv_heads, _, head_dim] = shape_of(cache);
    let pages = cache.index_select(0, pages).permute([1, 0, 2, 3]);
    let in_order = pages.reshape([num_kv_heads, -1, head_dim]);
    let seen = in_order.narrow(1, int(span.start), int(span.len()));
    seen.to_kind(Kind::Float)
}

/// How scores become weights.
struct Scores {
    scale: f32,
    window: Option<usize>,
    softcap: Option<f32>,
    /// `[num_q_heads]`.
    sinks: Option<Tensor>,
}

// === impl Scores ===

impl Scores {
    /// `[query][head][head_dim]` of queries that are the last tokens, over `[kv_head][len][head_dim]`
    /// of the last `len` keys.
    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Tensor {
        let [q_len, num_q_heads, head_dim] = shape_of(q);
        let [num_kv_heads, len, _] = shape_of(k);
        let group = num_q_heads / num_kv_heads;
        let q = q
            .permute([1, 0, 2])
            .reshape([num_kv_heads, group, q_len, head_dim]);
        let mut scores = q.matmul(&k.unsqueeze(1).transpose(2, 3)) * f64::from(self.scale);
        if let Some(cap) = self.softcap.map(f64::from) {
            scores = (scores / cap).tanh() * cap;
        }
        let all = Tensor::ones([q_len, len], (Kind::Bool, q.device()));
        let mut unseen = all.triu(len - q_len + 1);
        if let Some(window) = self.window {
            unseen = unseen.logical_or(&all.tril(len - q_len - int(window)));
        }
        let mut scores = scores.masked_fill(&unseen, f64::NEG_INFINITY);
        if let Some(sinks) = &self.sinks {
            let sinks = sinks.view([num_kv_heads, group, 1, 1]);
            let sinks = sinks.expand([num_kv_heads, group, q_len, 1], false);
            scores = Tensor::cat(&[scores, sinks], 3);
        }
        let weights = scores.softmax(-1, Kind::Float).narrow(3, 0, len);
        let out = weights.matmul(&v.unsqueeze(1));
        out.reshape([num_q_heads, q_len, -1]).permute([1, 0, 2])
    }
}
