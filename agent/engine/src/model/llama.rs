//! Llama: grouped-query attention, RoPE over the whole head, SwiGLU. Many other models have this
//! architecture under their own names; only files that say `llama` are read.

use super::dense::DenseFamily;

pub(super) const LLAMA: DenseFamily = DenseFamily {
    qk_norm: false,
    gguf_permutes_qk: true,
};
