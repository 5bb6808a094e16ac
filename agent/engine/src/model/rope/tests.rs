//! Frequencies against transformers', scaling by scaling.

use super::*;
use crate::model::config::Family;

fn config(rope_scaling: RopeScaling) -> ModelConfig {
    ModelConfig {
        family: Family::Llama,
        hidden_size: 64,
        intermediate_size: 64,
        num_layers: 1,
        num_heads: 1,
        num_kv_heads: 1,
        head_dim: 64,
        vocab_size: 8,
        context_len: 1024,
        rms_norm_eps: 1e-5,
        rope_theta: 500_000.0,
        rope_scaling,
        tie_word_embeddings: true,
        bos_token_id: None,
        eos_token_ids: Vec::new(),
    }
}

const LLAMA3: RopeScaling = RopeScaling::Llama3 {
    factor: 8.0,
    low_freq_factor: 1.0,
    high_freq_factor: 4.0,
    original_context_len: 8192.0,
};

#[test]
fn plain_frequencies_fall_from_one_by_the_base() {
    let plain = inverse_frequencies(&config(RopeScaling::None), None);
    assert_eq!(plain.len(), 32);
    assert_eq!(plain[0], 1.0);
    assert!((f64::from(plain[16]) - 500_000f64.powf(-0.5)).abs() < 1e-9);
}

#[test]
fn linear_scaling_and_a_files_divisors_divide() {
    let plain = inverse_frequencies(&config(RopeScaling::None), None);
    let linear = inverse_frequencies(&config(RopeScaling::Linear { factor: 4.0 }), None);
    let divided = inverse_frequencies(&config(RopeScaling::None), Some(&[4.0; 32]));
    for i in 0..32 {
        assert_eq!(linear[i], plain[i] / 4.0);
        assert_eq!(divided[i], linear[i]);
    }
}

/// Values of transformers 5.23 for head dim 64, theta 500,000, factor 8, 1 to 4, 8192.
#[test]
fn llama3_scaling_keeps_high_frequencies_and_stretches_low_ones() {
    let plain = inverse_frequencies(&config(RopeScaling::None), None);
    let scaled = inverse_frequencies(&config(LLAMA3), None);
    assert_eq!(scaled[..15], plain[..15]);
    assert_eq!(scaled[31], plain[31] / 8.0);
    for (pair, expected) in [
        (15, 1.371_893_7e-3),
        (16, 5.248_46e-4),
        (17, 1.785_077_9e-4),
    ] {
        let error = (scaled[pair] - expected).abs() / expected;
        assert!(error < 1e-6, "pair {pair}: {} for {expected}", scaled[pair]);
    }
}
