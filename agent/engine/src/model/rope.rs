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
            let base = f64::from(narrow(1.0 / f64::from(narrow(rope.theta.powf(exponent)))));
            let scaled = scale(base, rope.scaling);
            let divisor = divisors.map_or(1.0, |divisors| f64::from(divisors[pair]));
            narrow(scaled / divisor)
        })
        .collect()
}

fn scale(frequency: f64, scaling: RopeScaling) -> f64 {
    match scaling {
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
    }
}

#[cfg(test)]
mod tests;
