//! Qwen2's published configuration, beside what it describes.

use super::*;
use crate::model::config::{Attention, DenseFfn, Ffn, LayerConfig, Mixer, Rope, RopeScaling};
use crate::model::family::tests::{published, read};

#[test]
fn the_published_configuration_is_read() {
    let attention = Attention {
        num_heads: 28,
        num_kv_heads: 4,
        head_dim: 128,
        scale: 0.088_388_346,
        rope: 0,
        qk_norm: false,
        qkv_bias: true,
        o_bias: false,
        sinks: false,
        window: None,
        gated: false,
        out_norm: false,
    };
    let layer = LayerConfig {
        mixer: Mixer::Attention(attention),
        ffn: Ffn::Dense(DenseFfn::silu(18_944)),
    };
    let expected = ModelConfig {
        family: QWEN2.family(),
        hidden_size: 3584,
        vocab_size: 152_064,
        context_len: 32_768,
        rms_norm_eps: 1e-6,
        norm_plus_one: false,
        embed_scale: None,
        final_softcap: None,
        ropes: vec![Rope {
            rotary_dim: 128,
            theta: 1_000_000.0,
            scaling: RopeScaling::None,
        }],
        layers: vec![layer; 28],
        tie_word_embeddings: false,
        fp8: None,
        draft_layer: None,
        bos_token_id: Some(151_643),
        eos_token_ids: vec![151_645],
    };
    assert_eq!(read(&published("Qwen2-7B-Instruct")).unwrap(), expected);
}
