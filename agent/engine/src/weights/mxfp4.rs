//! MXFP4, as gpt-oss has it: 32 values of a row are 16 bytes, the lower half of a byte before the upper, and a
//! scale, 2 to the power of another byte − 127. Backends multiply no such weights as yet, so they are given the
//! same values in BF16, which has all of them.

use super::matrix::Matrix;
use super::tensor_view::TensorView;
use half::bf16;
use pd_compute::WeightFormat;
use std::borrow::Cow;

/// Values that have a scale in common.
pub(crate) const BLOCK_LEN: usize = 32;
/// Of the values of a block.
pub(crate) const BLOCK_BYTES: usize = 16;

/// Of the four bits: a sign, two of exponent and one of mantissa.
const VALUES: [f32; 16] = [
    0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
];

/// A matrix whose rows are blocks.
#[derive(Clone, Copy, Debug)]
pub struct Mxfp4<'a> {
    /// `[rows · columns / 32][16]`.
    pub(super) blocks: TensorView<'a, ()>,
    /// `[rows][columns / 32]`.
    pub(super) scales: TensorView<'a, ()>,
}

// === impl Mxfp4 ===

impl<'a> Mxfp4<'a> {
    /// Names of its tensors.
    pub fn names(&self) -> [&'a str; 2] {
        [self.blocks.name, self.scales.name]
    }

    /// Some of its rows, in this order.
    pub fn rows(&self, order: impl Iterator<Item = usize>) -> Matrix<'a> {
        let per_row = self.scales.columns;
        let mut bytes = Vec::new();
        let mut rows = 0;
        for row in order {
            let scales = &self.scales.bytes[row * per_row..][..per_row];
            let blocks = &self.blocks.bytes[row * per_row * BLOCK_BYTES..];
            for (block, scale) in blocks.chunks_exact(BLOCK_BYTES).zip(scales) {
                expand(block, *scale, &mut bytes);
            }
            rows += 1;
        }
        let expanded = TensorView {
            name: self.blocks.name,
            format: WeightFormat::BF16,
            rows,
            columns: per_row * BLOCK_LEN,
            bytes: &[],
        };
        Matrix::unscaled(&expanded, Cow::Owned(bytes))
    }
}

fn expand(block: &[u8], scale: u8, out: &mut Vec<u8>) {
    // The least one is below the normal numbers.
    let bits = u32::from(scale) << 23;
    let scale = f32::from_bits(if scale == 0 { 1 << 22 } else { bits });
    let values = VALUES.map(|value| bf16::from_f32(value * scale).to_le_bytes());
    for byte in block {
        out.extend(values[usize::from(byte & 15)]);
        out.extend(values[usize::from(byte >> 4)]);
    }
}

#[cfg(test)]
mod tests;
