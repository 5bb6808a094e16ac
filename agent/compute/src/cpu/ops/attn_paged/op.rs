//! The op's operands, as its tasks see them.

use crate::cpu::kv_layer::KvLayer;
use crate::cpu::memory::{Dst, Src};

/// The op, as its tasks see it.
pub(super) struct Attention {
    pub(super) q: Src<f32>,
    pub(super) q_row_stride: usize,
    /// Query heads per KV head.
    pub(super) group: usize,
    pub(super) scale: f32,
    pub(super) q_indptr: Src<u32>,
    pub(super) kv_lens: Src<u32>,
    pub(super) page_table: Src<u32>,
    pub(super) page_table_stride: usize,
    pub(super) num_seqs: usize,
    pub(super) num_tokens: usize,
    pub(super) layer: KvLayer,
    /// Keys that a query sees at most, itself among them.
    pub(super) window: usize,
    pub(super) sinks: Option<Src<f32>>,
    pub(super) softcap: Option<f32>,
    pub(super) value_dim: usize,
    /// Elements from a key to its value.
    pub(super) to_value: usize,
    pub(super) gate: Option<Gate>,
    pub(super) multiplies: Multiplies,
    /// Rows of `group · num_kv_heads · value_dim`.
    pub(super) out: Dst<f32>,
}

/// What products are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Multiplies {
    /// f32.
    Floats,
    /// bfloat16 (see [`super::pairs`]).
    Pairs,
    /// bfloat16, on AMX's tiles.
    Tiles,
}

/// Rows that results are multiplied by, as sigmoids.
pub(super) struct Gate {
    pub(super) rows: Src<f32>,
    pub(super) row_stride: usize,
}
