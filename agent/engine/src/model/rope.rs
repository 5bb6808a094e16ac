//! Rotary frequencies, with the scaling of the model's family in them.

use super::config::{Rope, RopeScaling, narrow};
use std::f64::consts::TAU;

/// One frequency per rotated pair: `theta^(-2i / rotary_dim)`, scaled. `divisors`, when the file
/// brings them, are applied as they are; such a file names no scaling of its own.
pub(super) fn inverse_frequencies(rope: &Rope, divisors: Option<&[f32]>) -> Vec<f32> {
    let rotary_dim = rope.rotary_dim as f64;
    (0..rope.rotary_dim / 2)
        .map(|pair| {
            // The reference rounds the base frequency to f32 before it scales it.
            let exponent = f64::from(narrow(2.0 * pair as f64 / rotary_dim));
            let power = f64::from(narrow(rope.theta.powf(exponent)));
            let divisor = divisors.map_or(1.0, |divisors| f64::from(divisors[pair]));
            narrow(scaled(rope, pair, power) / divisor)
        })
        .collect()
}

/// `1 / power`, scaled; `power` is that of theta for the pair.
fn scaled(rope: &Rope, pair: usize, power: f64) -> f64 {
    let frequency = f64::from(narrow(1.0 / power));
    match rope.scaling {
        RopeScaling::None => frequency,
        RopeScaling::Linear { factor } => frequency / factor,
        RopeScaling::Llama3 {
            factor,
            low_freq_factor,
            high_freq_factor,
            original_context_len,
        } => {
            let turns = original_context_len * frequency / TAU;
            let ramp = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor);
            let kept = ramp.clamp(0.0, 1.0);
            frequency * kept + frequency / factor * (1.0 - kept)
        }
        RopeScaling::Yarn {
            factor,
            beta_fast,
            beta_slow,
            original_context_len,
            truncate,
            attention_factor: _,
        } => {
            let turning = |turns| pair_that_turns(rope, original_context_len, turns);
            let (low, high) = (turning(beta_fast), turning(beta_slow));
            let (low, high) = if truncate {
                (low.floor(), high.ceil())
            } else {
                (low, high)
            };
            let (low, high) = (low.max(0.0), high.min(rope.rotary_dim as f64 - 1.0));
            let width = high - low;
            // As the reference, where all pairs are on one side.
            let width = if width == 0.0 { 0.001 } else { width };
            let stretched = ((pair as f64 - low) / width).clamp(0.0, 1.0);
            1.0 / (factor * power) * stretched + frequency * (1.0 - stretched)
        }
    }
}

/// The pair, with a fraction, that turns so many times in a context of `len`.
fn pair_that_turns(rope: &Rope, len: f64, turns: f64) -> f64 {
    rope.rotary_dim as f64 * (len / (turns * TAU)).ln() / (2.0 * rope.theta.ln())
}

#[cfg(test)]
mod tests;
