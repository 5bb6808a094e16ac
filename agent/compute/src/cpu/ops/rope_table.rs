//! Rotary embedding: the table of a step, and the rotation of a head by halves.

use crate::buffer::DeviceBuffer;
use crate::cpu::handle::CpuBackend;
use crate::cpu::queue::Exec;
use crate::cpu::simd::dispatch::Kernel;
use crate::cpu::simd::sixteen::{LANES, Sixteen};
use crate::ops::RopeTable;

/// π/2 in two parts; the first has 33 bits, so that multiples below 2^20 are exact.
const HALF_PI_HIGH: f64 = 1.570_796_326_734_125_6;
const HALF_PI_LOW: f64 = 6.077_100_506_506_192e-11;

pub(in crate::cpu) fn rope_table(
    op: RopeTable<'_, CpuBackend>,
) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let RopeTable {
        positions,
        inv_freq,
        factor,
        out,
        rows,
    } = op;
    let half = inv_freq.len();
    let positions = positions.src::<u32>("positions", rows);
    let inv_freq = inv_freq.src::<f32>("inv_freq", half);
    let out = out.dst::<f32>("rope_table out", rows * 2 * half);
    move |exec| {
        // SAFETY: on the queue; `out` is other memory.
        let (positions, inv_freq) = unsafe { (positions.slice(), inv_freq.slice()) };
        // A sine and cosine cost about sixteen elements of a simple op.
        exec.run_rows(rows, 16 * half, |range| {
            for r in range {
                // SAFETY: on the queue; each row belongs to one task.
                let row = unsafe { out.slice_mut(r * 2 * half..(r + 1) * 2 * half) };
                let (cos_row, sin_row) = row.split_at_mut(half);
                #[allow(clippy::cast_precision_loss, reason = "the reference's f32 positions")]
                let position = positions[r] as f32;
                for i in 0..half {
                    // The angle is rounded to f32, as the reference implementations do.
                    let (sin, cos) = sin_cos(f64::from(position * inv_freq[i]));
                    #[allow(clippy::cast_possible_truncation, reason = "rounded once, on purpose")]
                    let (sin, cos) = (sin as f32, cos as f32);
                    cos_row[i] = cos * factor;
                    sin_row[i] = sin * factor;
                }
            }
        });
    }
}

/// Sine and cosine of `0 ≤ x < 2^20`, the same bits on every machine (libm's differ by processor
/// and version), within 1e-15.
fn sin_cos(x: f64) -> (f64, f64) {
    let quarters = (x * std::f64::consts::FRAC_2_PI).round_ties_even();
    let r = (x - quarters * HALF_PI_HIGH) - quarters * HALF_PI_LOW;
    let r2 = r * r;
    // Taylor, |r| ≤ π/4: the first term left out is below 1e-16.
    let sin = horner(
        r2,
        &[
            -1.0 / 1_307_674_368_000.0,
            1.0 / 6_227_020_800.0,
            -1.0 / 39_916_800.0,
        ],
    );
    let sin = horner_from(
        sin,
        r2,
        &[1.0 / 362_880.0, -1.0 / 5_040.0, 1.0 / 120.0, -1.0 / 6.0],
    );
    let sin = r + r * r2 * sin;
    let cos = horner(r2, &[1.0 / 20_922_789_888_000.0, -1.0 / 87_178_291_200.0]);
    let cos = horner_from(
        cos,
        r2,
        &[1.0 / 479_001_600.0, -1.0 / 3_628_800.0, 1.0 / 40_320.0],
    );
    let cos = horner_from(cos, r2, &[-1.0 / 720.0, 1.0 / 24.0, -0.5]);
    let cos = 1.0 + r2 * cos;
    #[allow(clippy::cast_possible_truncation, reason = "at most 2^20")]
    match quarters as i64 & 3 {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

fn horner(x: f64, coefficients: &[f64]) -> f64 {
    horner_from(0.0, x, coefficients)
}

/// Continues a polynomial, highest power first.
fn horner_from(start: f64, x: f64, coefficients: &[f64]) -> f64 {
    coefficients.iter().fold(start, |p, c| p * x + c)
}

/// Rotates the first `2·cos.len()` elements of a head: dimension i with i + cos.len().
pub(super) struct RotateHead<'a> {
    pub(super) head: &'a mut [f32],
    pub(super) cos: &'a [f32],
    pub(super) sin: &'a [f32],
}

impl Kernel for RotateHead<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Sixteen>(self) {
        let Self { head, cos, sin } = self;
        let (first, second) = head.split_at_mut(cos.len());
        let mut at = 0;
        while at < cos.len() {
            let end = cos.len().min(at + LANES);
            // SAFETY: the instruction set by the caller; parts have at most sixteen elements.
            unsafe {
                let (a, b) = (
                    V::load_up_to(&first[at..end]),
                    V::load_up_to(&second[at..end]),
                );
                let (c, s) = (V::load_up_to(&cos[at..end]), V::load_up_to(&sin[at..end]));
                a.mul(c).sub(b.mul(s)).store_up_to(&mut first[at..end]);
                b.mul(c).add(a.mul(s)).store_up_to(&mut second[at..end]);
            }
            at = end;
        }
    }
}

#[cfg(test)]
mod tests;
