//! Activations as integers of sixteen bits: thirty-two of a row share a scale, and the greatest of them becomes 32,767.
//!
//! What is rounded off is at most about 2⁻¹⁶ of the greatest. Every instruction set gives the same bits. A group that
//! holds what is no finite number has NaN for a scale, and so have all outputs of its row.

/// Values that share a scale.
pub(super) const GROUP_LEN: usize = 32;
/// Words of a group: its scale, the sum of its integers times the scale, and the integers, two in a word.
pub(super) const GROUP_WORDS: usize = HEAD_WORDS + GROUP_LEN / 2;
/// The scale and the sum.
pub(super) const HEAD_WORDS: usize = 2;

const GREATEST: f32 = 32767.0;
/// Below it all are zeros: one over their scale might be no number.
const LEAST: f32 = f32::MIN_POSITIVE * (1 << 20) as f32;
/// A sum of it and a number below 2²² has that number in its low bits, rounded to the nearest integer, of two to the
/// even one.
pub(super) const ROUNDING: f32 = 12_582_912.0;

/// Writes the groups of a row's values.
///
/// # Safety
/// The instruction set is there.
pub(crate) type QuantizeKernel = unsafe fn(x: &[f32], out: &mut [f32]);

/// Words of a row of `k` values.
pub(crate) const fn row_words(k: usize) -> usize {
    k / GROUP_LEN * GROUP_WORDS
}

type Group = [f32; GROUP_WORDS];

/// Each group of a row's values, and where it goes.
#[inline(always)]
pub(super) fn groups<'a>(
    x: &'a [f32],
    out: &'a mut [f32],
) -> impl Iterator<Item = (&'a [f32; GROUP_LEN], &'a mut Group)> {
    x.as_chunks().0.iter().zip(out.as_chunks_mut().0)
}

/// A group's scale, and what makes integers of its values, by the size of the greatest.
#[inline(always)]
pub(super) fn scale(greatest: f32) -> (f32, f32) {
    if !greatest.is_finite() {
        (f32::NAN, 0.0)
    } else if greatest < LEAST {
        (0.0, 0.0)
    } else {
        (greatest * (1.0 / GREATEST), GREATEST / greatest)
    }
}

/// Writes a group's scale, and with it the sum of its integers.
#[inline(always)]
pub(super) fn write_head(scale: f32, sum: i32, out: &mut Group) {
    out[0] = scale;
    #[allow(clippy::cast_precision_loss, reason = "below 2²⁴")]
    let sum = sum as f32;
    out[1] = sum * scale;
}

#[inline(always)]
pub(super) fn quantize(x: &[f32], out: &mut [f32]) {
    for (x, out) in groups(x, out) {
        // Without their signs, numbers are in the order of their bits.
        let sizes = x.iter().map(|x| x.to_bits() & !(1 << 31));
        let greatest = f32::from_bits(sizes.fold(0, u32::max));
        let (scale, inverse) = scale(greatest);
        let mut sum = 0_i32;
        let mut integers = [0_i16; GROUP_LEN];
        for (integer, x) in integers.iter_mut().zip(x) {
            let rounded = x.mul_add(inverse, ROUNDING).to_bits();
            let value = rounded.wrapping_sub(ROUNDING.to_bits()).cast_signed();
            sum = sum.wrapping_add(value);
            #[allow(
                clippy::cast_possible_truncation,
                reason = "its size is at most `GREATEST`"
            )]
            let value = value as i16;
            *integer = value;
        }
        write_head(scale, sum, out);
        let words = out[HEAD_WORDS..].iter_mut();
        for (word, [low, high]) in words.zip(integers.as_chunks::<2>().0) {
            let low = u32::from(low.cast_unsigned());
            *word = f32::from_bits(low | u32::from(high.cast_unsigned()) << 16);
        }
    }
}
