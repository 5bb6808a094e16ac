//! Passes over a row of logits. NaN counts as −∞ everywhere.

use crate::cpu::simd::dispatch::Kernel;
use crate::cpu::simd::sixteen::{LANES, Sixteen};

/// The largest value; −∞ when there is no other.
pub(super) struct Largest<'a> {
    pub(super) values: &'a [f32],
}

/// Sum of exp(value − largest), per lane and then over the lanes.
pub(super) struct SumExp<'a> {
    pub(super) values: &'a [f32],
    pub(super) largest: f32,
}

/// `weights[i] = exp((values[i] − largest) / temperature)`.
pub(super) struct Weigh<'a> {
    pub(super) values: &'a [f32],
    pub(super) largest: f32,
    pub(super) temperature: f32,
    /// As long as `values`.
    pub(super) weights: &'a mut [f32],
}

impl Kernel for Largest<'_> {
    type Output = f32;

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) -> f32 {
        let (chunks, rest) = self.values.as_chunks::<LANES>();
        // SAFETY: the instruction set by the caller; chunks are whole vectors.
        unsafe {
            // `max` yields its argument when the value is NaN.
            let mut largest = V::splat(f32::NEG_INFINITY);
            for chunk in chunks {
                largest = V::load(chunk.as_ptr()).max(largest);
            }
            V::load_part(rest, f32::NEG_INFINITY).max(largest).largest()
        }
    }
}

impl Kernel for SumExp<'_> {
    type Output = f32;

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) -> f32 {
        let (chunks, rest) = self.values.as_chunks::<LANES>();
        // SAFETY: the instruction set by the caller; chunks are whole vectors.
        unsafe {
            let largest = V::splat(self.largest);
            let none = V::splat(f32::NEG_INFINITY);
            let mut sum = V::splat(0.0);
            for chunk in chunks {
                sum = sum.add(V::load(chunk.as_ptr()).max(none).sub(largest).exp());
            }
            let rest = V::load_part(rest, f32::NEG_INFINITY).max(none);
            sum.add(rest.sub(largest).exp()).sum()
        }
    }
}

impl Kernel for Weigh<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) {
        let Self {
            values,
            largest,
            temperature,
            weights,
        } = self;
        let (chunks, rest) = values.as_chunks::<LANES>();
        let (out, out_rest) = weights.as_chunks_mut::<LANES>();
        // SAFETY: the instruction set by the caller; chunks are whole vectors.
        unsafe {
            let (largest, temperature) = (V::splat(largest), V::splat(temperature));
            let none = V::splat(f32::NEG_INFINITY);
            for (chunk, out) in chunks.iter().zip(out) {
                let value = V::load(chunk.as_ptr()).max(none);
                value
                    .sub(largest)
                    .div(temperature)
                    .exp()
                    .store(out.as_mut_ptr());
            }
            let rest = V::load_part(rest, f32::NEG_INFINITY).max(none);
            rest.sub(largest)
                .div(temperature)
                .exp()
                .store_part(out_rest);
        }
    }
}
