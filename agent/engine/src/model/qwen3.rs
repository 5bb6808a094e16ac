//! Qwen3, dense: as llama, with an RMS norm over each query and key head before RoPE. Its GGUF
//! files keep the rows of Q and K as they are, since llama.cpp rotates this family by halves.

use super::dense::DenseFamily;

pub(super) const QWEN3: DenseFamily = DenseFamily {
    qk_norm: true,
    gguf_permutes_qk: false,
};
