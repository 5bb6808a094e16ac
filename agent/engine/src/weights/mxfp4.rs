//! MXFP4, as gpt-oss has it: 32 values of a row are 16 bytes, the lower half of a byte before the upper, and a
//! scale, 2 to the power of another byte − 127, in another tensor. Backends take scale and values side by side, the values'
//! halves in GGUF's order.

use super::matrix::Matrix;
use super::tensor_view::TensorView;
use pd_compute::WeightFormat;
use std::borrow::Cow;

/// Values that have a scale in common.
pub(crate) const BLOCK_LEN: usize = 32;
/// Of the values of a block.
pub(crate) const BLOCK_BYTES: usize = 16;

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

    /// Row and column of the first scale that is no number.
    pub(super) fn nan(&self) -> Option<(usize, usize)> {
        let at = self
            .scales
            .bytes
            .iter()
            .position(|scale| *scale == u8::MAX)?;
        Some((at / self.scales.columns, at % self.scales.columns))
    }

    /// Some of its rows, in this order.
    pub fn rows(&self, order: impl Iterator<Item = usize>) -> Matrix<'a> {
        let per_row = self.scales.columns;
        let row_bytes = per_row * (1 + BLOCK_BYTES);
        let mut bytes = Vec::with_capacity(order.size_hint().0 * row_bytes);
        let mut rows = 0;
        for row in order {
            let scales = &self.scales.bytes[row * per_row..][..per_row];
            let blocks = &self.blocks.bytes[row * per_row * BLOCK_BYTES..];
            for (block, scale) in blocks.as_chunks().0.iter().zip(scales) {
                let mut stored = [*scale; 1 + BLOCK_BYTES];
                stored[1..].copy_from_slice(&reordered(block));
                bytes.extend_from_slice(&stored);
            }
            rows += 1;
        }
        let stored = TensorView {
            name: self.blocks.name,
            format: WeightFormat::Mxfp4,
            rows,
            columns: per_row * BLOCK_LEN,
            bytes: self.blocks.bytes,
        };
        Matrix::unscaled(&stored, Cow::Owned(bytes))
    }
}

/// Pairs of values that lie beside each other, as pairs that lie half a block apart.
fn reordered(block: &[u8; BLOCK_BYTES]) -> [u8; BLOCK_BYTES] {
    const LOWER: u64 = 0x0f0f_0f0f_0f0f_0f0f;
    let [first, second] = [0, 8].map(|at| {
        let half = block[at..].first_chunk();
        u64::from_le_bytes(*half.expect("a block has 16 bytes"))
    });
    let even = first & LOWER | (second & LOWER) << 4;
    let odd = first >> 4 & LOWER | second & !LOWER;
    let values = [even.to_le_bytes(), odd.to_le_bytes()];
    std::array::from_fn(|i| values[i % 2][i / 2])
}

#[cfg(test)]
mod tests;
