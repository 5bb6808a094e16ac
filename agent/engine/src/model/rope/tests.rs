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

const YARN: RopeScaling = RopeScaling::Yarn {
    factor: 32.0,
    beta_fast: 32.0,
    beta_slow: 1.0,
    original_context_len: 4096.0,
    truncate: false,
    attention_factor: 1.346_573_6,
};

fn assert_close(frequencies: &[f32], expected: &[(usize, f32)]) {
    for (pair, expected) in expected {
        let frequency = frequencies[*pair];
        let error = (frequency - expected).abs() / expected;
        assert!(error < 1e-6, "pair {pair}: {frequency} for {expected}");
    }
}

/// Values of transformers 5.19 for head dim 64: theta 150,000 with a ramp as it falls, and theta 1,000,000,
/// factor 4 and 32,768 with one of whole pairs.
#[test]
fn yarn_stretches_pairs_that_turn_seldom() {
    let whole = Rope {
        theta: 150_000.0,
        ..rope(YARN)
    };
    assert_eq!(whole.attention_factor(), 1.346_573_6);
    assert_close(
        &inverse_frequencies(&whole, None),
        &[
            (0, 1.0),
            (5, 0.155_322_98),
            (8, 0.050_813_273),
            (12, 0.006_794_959_3),
            (16, 4.564_839_2e-4),
            (18, 3.830_881e-5),
            (31, 3.023_511_4e-7),
        ],
    );
    let cut = Rope {
        theta: 1e6,
        ..rope(RopeScaling::Yarn {
            factor: 4.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            original_context_len: 32_768.0,
            truncate: true,
            attention_factor: 1.0,
        })
    };
    assert_close(
        &inverse_frequencies(&cut, None),
        &[
            (8, 0.031_622_78),
            (12, 0.005_154_795_5),
            (16, 5.833_333_7e-4),
            (20, 4.445_698_5e-5),
            (31, 3.849_816_3e-7),
        ],
    );
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
