//! The arguments of kernels, field by field as in `args.cuh`.

use super::CONV_TENSORS;
use bytemuck::{Pod, Zeroable};

/// `Fault` of the kernels: what a wrong index was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct Fault {
    pub(in crate::cuda) op: u32,
    pub(in crate::cuda) what: u32,
    pub(in crate::cuda) value: u32,
    pub(in crate::cuda) limit: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct KvLayer {
    pub(in crate::cuda) base: u64,
    pub(in crate::cuda) page_stride: u64,
    pub(in crate::cuda) head_stride: u64,
    pub(in crate::cuda) kv_stride: u64,
    pub(in crate::cuda) slot_stride: u64,
    pub(in crate::cuda) page_size: u32,
    pub(in crate::cuda) num_pages: u32,
    pub(in crate::cuda) num_kv_heads: u32,
    pub(in crate::cuda) head_dim: u32,
    pub(in crate::cuda) saturated: u64,
    pub(in crate::cuda) k_scale: f32,
    pub(in crate::cuda) v_scale: f32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct Batch {
    pub(in crate::cuda) q_indptr: u64,
    pub(in crate::cuda) kv_lens: u64,
    pub(in crate::cuda) page_table: u64,
    pub(in crate::cuda) page_table_stride: u32,
    pub(in crate::cuda) num_tokens: u32,
    pub(in crate::cuda) num_seqs: u32,
    pub(in crate::cuda) pad: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct EmbedArgs {
    pub(in crate::cuda) table: u64,
    pub(in crate::cuda) token_ids: u64,
    pub(in crate::cuda) out: u64,
    pub(in crate::cuda) fault: u64,
    pub(in crate::cuda) vocab: u32,
    pub(in crate::cuda) row_bytes: u32,
    pub(in crate::cuda) element_bytes: u32,
    pub(in crate::cuda) scale: f32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct RmsNormArgs {
    pub(in crate::cuda) x: u64,
    pub(in crate::cuda) add: u64,
    pub(in crate::cuda) weight: u64,
    pub(in crate::cuda) out: u64,
    pub(in crate::cuda) hidden: u32,
    pub(in crate::cuda) eps: f32,
    pub(in crate::cuda) adds: u32,
    pub(in crate::cuda) pad: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct RopeTableArgs {
    pub(in crate::cuda) positions: u64,
    pub(in crate::cuda) inv_freq: u64,
    pub(in crate::cuda) out: u64,
    pub(in crate::cuda) rows: u32,
    pub(in crate::cuda) half: u32,
    pub(in crate::cuda) factor: f32,
    pub(in crate::cuda) pad: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct QkvPrepArgs {
    pub(in crate::cuda) qkv: u64,
    pub(in crate::cuda) bias: u64,
    pub(in crate::cuda) q_norm: u64,
    pub(in crate::cuda) k_norm: u64,
    pub(in crate::cuda) rope: u64,
    pub(in crate::cuda) out_slots: u64,
    pub(in crate::cuda) fault: u64,
    pub(in crate::cuda) kv: KvLayer,
    pub(in crate::cuda) row_stride: u64,
    pub(in crate::cuda) rotary_dim: u32,
    pub(in crate::cuda) num_q_heads: u32,
    pub(in crate::cuda) eps: f32,
    pub(in crate::cuda) pad: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct GatherRowsArgs {
    pub(in crate::cuda) src: u64,
    pub(in crate::cuda) indices: u64,
    pub(in crate::cuda) out: u64,
    pub(in crate::cuda) fault: u64,
    pub(in crate::cuda) row_bytes: u64,
    pub(in crate::cuda) src_rows: u32,
    pub(in crate::cuda) pad: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct CopyPagesArgs {
    pub(in crate::cuda) pool: u64,
    pub(in crate::cuda) host: u64,
    pub(in crate::cuda) page_indices: u64,
    pub(in crate::cuda) fault: u64,
    pub(in crate::cuda) cut_page_bytes: u64,
    pub(in crate::cuda) host_page_bytes: u64,
    pub(in crate::cuda) host_offset_bytes: u64,
    pub(in crate::cuda) num_pool_pages: u32,
    pub(in crate::cuda) to_host: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct LinearArgs {
    pub(in crate::cuda) x: u64,
    pub(in crate::cuda) weight: u64,
    pub(in crate::cuda) out: u64,
    pub(in crate::cuda) norm: u64,
    pub(in crate::cuda) bias: u64,
    pub(in crate::cuda) rows: u32,
    pub(in crate::cuda) n: u32,
    pub(in crate::cuda) k: u32,
    pub(in crate::cuda) epilogue: u32,
    pub(in crate::cuda) eps: f32,
    pub(in crate::cuda) alpha: f32,
    pub(in crate::cuda) limit: f32,
    pub(in crate::cuda) shares: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct SwiGluArgs {
    pub(in crate::cuda) y: u64,
    pub(in crate::cuda) out: u64,
    pub(in crate::cuda) rows: u32,
    pub(in crate::cuda) n: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct AttnArgs {
    pub(in crate::cuda) q: u64,
    pub(in crate::cuda) out: u64,
    pub(in crate::cuda) partials: u64,
    pub(in crate::cuda) arrivals: u64,
    pub(in crate::cuda) fault: u64,
    pub(in crate::cuda) batch: Batch,
    pub(in crate::cuda) kv: KvLayer,
    pub(in crate::cuda) q_row_stride: u64,
    pub(in crate::cuda) num_q_heads: u32,
    pub(in crate::cuda) splits: u32,
    pub(in crate::cuda) scale_log2: f32,
    /// By which kernels divide by the page size.
    pub(in crate::cuda) page_multiplier: u32,
    pub(in crate::cuda) sinks: u64,
    pub(in crate::cuda) gate: u64,
    pub(in crate::cuda) gate_row_stride: u64,
    pub(in crate::cuda) window: u32,
    pub(in crate::cuda) softcap_log2: f32,
    pub(in crate::cuda) softcap_inverse: f32,
    pub(in crate::cuda) value_dim: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct MoeRouteArgs {
    pub(in crate::cuda) logits: u64,
    pub(in crate::cuda) choice_bias: u64,
    pub(in crate::cuda) chosen: u64,
    pub(in crate::cuda) weights: u64,
    pub(in crate::cuda) rows: u32,
    pub(in crate::cuda) num_experts: u32,
    pub(in crate::cuda) top_k: u32,
    pub(in crate::cuda) scores: u32,
    pub(in crate::cuda) groups: u32,
    pub(in crate::cuda) groups_chosen: u32,
    pub(in crate::cuda) group_best: u32,
    pub(in crate::cuda) normalise: u32,
    pub(in crate::cuda) scale: f32,
    pub(in crate::cuda) pad: u32,
}

/// Which experts of a layer are here.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct LocalExperts {
    pub(in crate::cuda) num_experts: u32,
    pub(in crate::cuda) first: u32,
    pub(in crate::cuda) count: u32,
    pub(in crate::cuda) pad: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct ExpertTilesArgs {
    pub(in crate::cuda) chosen: u64,
    pub(in crate::cuda) tiles: u64,
    pub(in crate::cuda) rows: u64,
    pub(in crate::cuda) choices: u64,
    pub(in crate::cuda) fault: u64,
    pub(in crate::cuda) experts: LocalExperts,
    pub(in crate::cuda) num_choices: u32,
    pub(in crate::cuda) top_k: u32,
    pub(in crate::cuda) tile_rows: u32,
    pub(in crate::cuda) tiles_max: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct ExpertLinearArgs {
    pub(in crate::cuda) product: LinearArgs,
    pub(in crate::cuda) chosen: u64,
    pub(in crate::cuda) tiles: u64,
    pub(in crate::cuda) x_rows: u64,
    pub(in crate::cuda) out_rows: u64,
    pub(in crate::cuda) fault: u64,
    pub(in crate::cuda) experts: LocalExperts,
    pub(in crate::cuda) x_divisor: u32,
    pub(in crate::cuda) pad: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct MoeCombineArgs {
    pub(in crate::cuda) terms: u64,
    pub(in crate::cuda) chosen: u64,
    pub(in crate::cuda) weights: u64,
    pub(in crate::cuda) sums: u64,
    pub(in crate::cuda) experts: LocalExperts,
    pub(in crate::cuda) hidden: u32,
    pub(in crate::cuda) top_k: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct MoeFinishArgs {
    pub(in crate::cuda) sums: u64,
    pub(in crate::cuda) shared: u64,
    pub(in crate::cuda) gate: u64,
    pub(in crate::cuda) x: u64,
    pub(in crate::cuda) hidden: u32,
    pub(in crate::cuda) pad: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct States {
    pub(in crate::cuda) region: u64,
    pub(in crate::cuda) item_len: u64,
    pub(in crate::cuda) q_indptr: u64,
    pub(in crate::cuda) read: u64,
    pub(in crate::cuda) write: u64,
    pub(in crate::cuda) snapshot: u64,
    pub(in crate::cuda) num_slots: u32,
    pub(in crate::cuda) pad: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct ConvTensor {
    pub(in crate::cuda) first: u64,
    pub(in crate::cuda) head_stride: u64,
    pub(in crate::cuda) first_channel: u32,
    pub(in crate::cuda) head_channels: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct CausalConvArgs {
    pub(in crate::cuda) x: u64,
    pub(in crate::cuda) weight: u64,
    pub(in crate::cuda) out: u64,
    pub(in crate::cuda) fault: u64,
    pub(in crate::cuda) states: States,
    pub(in crate::cuda) x_row_stride: u64,
    pub(in crate::cuda) tensors: [ConvTensor; CONV_TENSORS],
    pub(in crate::cuda) channels: u32,
    pub(in crate::cuda) taps: u32,
    pub(in crate::cuda) chunk: u32,
    pub(in crate::cuda) num_seqs: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct GdnScanArgs {
    pub(in crate::cuda) qkv: u64,
    pub(in crate::cuda) a: u64,
    pub(in crate::cuda) b: u64,
    pub(in crate::cuda) decay: u64,
    pub(in crate::cuda) dt_bias: u64,
    pub(in crate::cuda) out: u64,
    pub(in crate::cuda) fault: u64,
    pub(in crate::cuda) states: States,
    pub(in crate::cuda) first: u64,
    pub(in crate::cuda) head_stride: u64,
    pub(in crate::cuda) a_row_stride: u64,
    pub(in crate::cuda) b_row_stride: u64,
    pub(in crate::cuda) num_k_heads: u32,
    pub(in crate::cuda) num_v_heads: u32,
    pub(in crate::cuda) k_dim: u32,
    pub(in crate::cuda) v_dim: u32,
    pub(in crate::cuda) q_scale: f32,
    pub(in crate::cuda) pad: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct GatedNormArgs {
    pub(in crate::cuda) x: u64,
    pub(in crate::cuda) z: u64,
    pub(in crate::cuda) weight: u64,
    pub(in crate::cuda) z_row_stride: u64,
    pub(in crate::cuda) num_heads: u32,
    pub(in crate::cuda) head_dim: u32,
    pub(in crate::cuda) eps: f32,
    pub(in crate::cuda) pad: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct CopyStatesArgs {
    pub(in crate::cuda) states: u64,
    pub(in crate::cuda) host: u64,
    pub(in crate::cuda) slots: u64,
    pub(in crate::cuda) fault: u64,
    pub(in crate::cuda) item_bytes: u64,
    pub(in crate::cuda) part_bytes: u64,
    pub(in crate::cuda) num_slots: u32,
    pub(in crate::cuda) to_host: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct MlaPrepArgs {
    pub(in crate::cuda) q: u64,
    pub(in crate::cuda) latent: u64,
    pub(in crate::cuda) norm: u64,
    pub(in crate::cuda) rope: u64,
    pub(in crate::cuda) out_slots: u64,
    pub(in crate::cuda) q_out: u64,
    pub(in crate::cuda) fault: u64,
    pub(in crate::cuda) kv: KvLayer,
    pub(in crate::cuda) num_heads: u32,
    pub(in crate::cuda) nope_dim: u32,
    pub(in crate::cuda) rope_dim: u32,
    pub(in crate::cuda) latent_dim: u32,
    pub(in crate::cuda) eps: f32,
    pub(in crate::cuda) pad: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct HeadLinearArgs {
    pub(in crate::cuda) product: LinearArgs,
    pub(in crate::cuda) x_head_stride: u64,
    pub(in crate::cuda) out_head_stride: u64,
    pub(in crate::cuda) heads: u32,
    pub(in crate::cuda) pad: u32,
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(in crate::cuda) struct SampleArgs {
    pub(in crate::cuda) logits: u64,
    pub(in crate::cuda) rows: u64,
    pub(in crate::cuda) token_counts: u64,
    pub(in crate::cuda) logit_bias: u64,
    pub(in crate::cuda) masks: u64,
    pub(in crate::cuda) asked_tokens: u64,
    pub(in crate::cuda) tokens: u64,
    pub(in crate::cuda) logprobs: u64,
    pub(in crate::cuda) top_tokens: u64,
    pub(in crate::cuda) top_logprobs: u64,
    pub(in crate::cuda) asked_logprobs: u64,
    pub(in crate::cuda) partials: u64,
    pub(in crate::cuda) listed: u64,
    pub(in crate::cuda) vocab: u32,
    pub(in crate::cuda) top_n_max: u32,
    pub(in crate::cuda) num_token_counts: u32,
    pub(in crate::cuda) num_logit_bias: u32,
    pub(in crate::cuda) num_masks: u32,
    pub(in crate::cuda) asked_max: u32,
}
