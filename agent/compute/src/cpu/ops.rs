//! The ops as commands: each function takes what its command needs out of a checked op.

pub(super) mod attn_paged;
pub(super) mod causal_conv;
mod copied;
pub(super) mod copy_pages;
pub(super) mod copy_states;
pub(super) mod embed;
pub(super) mod gated_norm;
pub(super) mod gather_rows;
pub(super) mod gdn_scan;
pub(super) mod head_linear;
pub(super) mod linear;
pub(super) mod mla_prep;
pub(super) mod moe_experts;
pub(super) mod moe_finish;
pub(super) mod moe_route;
pub(super) mod qkv_prep;
pub(super) mod rms_norm;
pub(super) mod rope_table;
pub(super) mod sample;
