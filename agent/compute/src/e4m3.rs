//! E4M3: a byte of a sign, four bits of exponent (less 7) and three of mantissa. There are no infinities; all ones is
//! NaN. Weights and pools of keys and values have it.
//!
//! An f16 with a code's bits in its places is the code's value divided by [`OVER_F16`], below the normal numbers, too.

use half::f16;

/// The largest value.
pub const MAX: f32 = 448.0;

/// A value divided by the f16 that has its bits: the exponents' biases are 7 and 15.
pub(crate) const OVER_F16: f32 = 256.0;

/// The smallest normal number.
const MIN_NORMAL: f32 = 1.0 / 64.0;
/// One over the smallest subnormal number.
const SUBNORMAL_STEPS: f32 = 512.0;
const MAX_CODE: u8 = 0x7e;
const NAN: u8 = 0x7f;

/// A value divided by [`OVER_F16`].
pub(crate) fn as_f16(code: u8) -> f16 {
    let moved = u16::from(code & 0x80) << 8 | u16::from(code & 0x7f) << 7;
    // Only where all bits are ones a carry makes the exponent that of f16's NaN.
    f16::from_bits(moved | ((moved + 0x80) & 0x4000))
}

/// The value of a code: exact, as f32 has them all.
pub fn value(code: u8) -> f32 {
    as_f16(code).to_f32() * OVER_F16
}

/// The nearest code, of two that are equally near the even one; that of ± [`MAX`] beyond it, and NaN of NaN.
pub fn rounded(value: f32) -> u8 {
    let size = value.abs();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most 8 of the smallest steps, and what is left of an exponent and a mantissa"
    )]
    let code = if size.is_nan() {
        NAN
    } else if size >= MAX {
        MAX_CODE
    } else if size < MIN_NORMAL {
        (size * SUBNORMAL_STEPS).round_ties_even() as u8
    } else {
        // The low 20 bits go; a half of them goes to the even one. A carry makes the next exponent.
        let bits = size.to_bits();
        let rounded = bits + 0x7_ffff + (bits >> 20 & 1);
        ((rounded >> 20) - (120 << 3)) as u8
    };
    code | u8::from(value.is_sign_negative()) << 7
}

#[cfg(test)]
mod tests;
