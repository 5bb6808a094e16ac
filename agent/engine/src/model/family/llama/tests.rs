//! Llama's published configuration, beside what it describes.

use super::*;
use crate::model::config::{Attention, DenseFfn, Ffn, LayerConfig, Mixer, Rope, RopeScaling};
use crate::model::family::tests::{published, read};

#[test]
fn the_published_configuration_is_read() {
    let attention = Attention {
        num_heads: 32,
        num_kv_heads: 8,
        head_dim: 128,
        scale: 0.088_388_346,
        rope: 0,
        qk_norm: false,
        qkv_bias: false,
        o_bias: false,
        sinks: false,
        window: None,
        gated: false,
        out_norm: false,
    };
    let layer = LayerConfig {
        mixer: Mixer::Attention(attention),
        ffn: Ffn::Dense(DenseFfn::silu(14_336)),
    };
    let expected = ModelConfig {
        family: LLAMA.family(),
        hidden_size: 4096,
        vocab_size: 128_256,
        context_len: 131_072,
        rms_norm_eps: 1e-5,
        norm_plus_one: false,
        embed_scale: None,
        final_softcap: None,
        ropes: vec![Rope {
            rotary_dim: 128,
            theta: 500_000.0,
            scaling: RopeScaling::Llama3 {
                factor: 8.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_context_len: 8192.0,
            },
        }],
        layers: vec![layer; 32],
        tie_word_embeddings: false,
        fp8: None,
        draft_layer: None,
        bos_token_id: Some(128_000),
        eos_token_ids: vec![128_001],
    };
    assert_eq!(read(&published("Llama-3.1-8B")).unwrap(), expected);
}
