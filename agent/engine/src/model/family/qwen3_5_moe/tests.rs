//! Qwen3.5's published configuration with experts, beside what it describes.

use super::*;
use crate::model::config::{
    Attention, GatedDelta, Glu, LayerConfig, Mixer, Rope, RopeScaling, Scores,
};
use crate::model::family::tests::{published, read};
use serde_json::json;

const NAME: &str = "qwen3.5-35b-a3b";

#[test]
fn the_published_configuration_is_read() {
    let attention = Mixer::Attention(Attention {
        num_heads: 16,
        num_kv_heads: 2,
        head_dim: 256,
        scale: 0.0625,
        rope: 0,
        qk_norm: true,
        qkv_bias: false,
        window: None,
        gated: true,
        out_norm: false,
        o_bias: false,
        sinks: false,
    });
    let delta = Mixer::GatedDelta(GatedDelta {
        num_k_heads: 16,
        num_v_heads: 32,
        k_dim: 128,
        v_dim: 128,
        taps: 4,
    });
    let ffn = Ffn::Moe(MoeFfn {
        num_experts: 256,
        top_k: 8,
        width: 512,
        scores: Scores::Softmax,
        groups: None,
        choice_bias: false,
        scale: 1.0,
        normalise: true,
        glu: Glu::Silu,
        biases: false,
        shared: Some(SharedExpert {
            width: 512,
            gated: true,
        }),
    });
    let layer = |mixer| LayerConfig { mixer, ffn };
    let [delta, attention] = [layer(delta), layer(attention)];
    let expected = ModelConfig {
        family: QWEN3_5_MOE.family(),
        hidden_size: 2048,
        vocab_size: 248_320,
        context_len: 262_144,
        rms_norm_eps: 1e-6,
        norm_plus_one: true,
        embed_scale: None,
        final_softcap: None,
        ropes: vec![Rope {
            rotary_dim: 64,
            theta: 1e7,
            scaling: RopeScaling::None,
        }],
        layers: [delta, delta, delta, attention].repeat(10),
        tie_word_embeddings: false,
        fp8: None,
        draft_layer: None,
        bos_token_id: None,
        eos_token_ids: vec![248_044],
    };
    assert_eq!(read(&published(NAME)).unwrap(), expected);
    let mut without = published(NAME);
    without["text_config"]["shared_expert_intermediate_size"] = json!(null);
    let message = read(&without).unwrap_err().to_string();
    assert!(
        message.contains("shared_expert_intermediate_size is missing"),
        "{message}"
    );
}
