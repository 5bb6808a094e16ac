//! Frequencies against transformers', scaling by scaling.

use super::*;

fn rope(scaling: RopeScaling) -> Rope {
    Rope {
        rotary_dim: 64,
        theta: 500_000.0,
        scaling,
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
    let plain = inverse_frequencies(&rope(RopeScaling::None), None);
    assert_eq!(plain.len(), 32);
    assert_eq!(plain[0], 1.0);
    assert!((f64::from(plain[16]) - 500_000f64.powf(-0.5)).abs() < 1e-9);
}

#[test]
fn linear_scaling_and_a_files_divisors_divide() {
    let plain = inverse_frequencies(&rope(RopeScaling::None), None);
    let linear = inverse_frequencies(&rope(RopeScaling::Linear { factor: 4.0 }), None);
    let divided = inverse_frequencies(&rope(RopeScaling::None), Some(&[4.0; 32]));
    for i in 0..32 {
        assert_eq!(linear[i], plain[i] / 4.0);
        assert_eq!(divided[i], linear[i]);
    }
}

/// Values of transformers 5.23 for head dim 64, theta 500,000, factor 8, 1 to 4, 8192.
#[test]
fn llama3_scaling_keeps_high_frequencies_and_stretches_low_ones() {
    let plain = inverse_frequencies(&rope(RopeScaling::None), None);
    let scaled = inverse_frequencies(&rope(LLAMA3), None);
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
