//! The bytes of a packed block: 32 lanes (outputs), k outermost.
//!
//! | format | per | bytes |
//! |---|---|---|
//! | F32, F16 | k | 32 values |
//! | BF16 | 2 k | 32 words: the even k in the low half, the odd k in the high half |
//! | BF16, [compact](super::compact) | block | 16 high bytes, in 64 bytes |
//! |  | 4 k | two rows of 64 low bytes; a row of nibbles, which name high bytes: the first row's low, the second's high |
//! |  | block | places and values of the weights whose high byte is none of those |
//! | F8E4M3 | block | the number of k that share a scale, in 64 bytes |
//! |  | so many k | 32 f32 scales times 256; per k 32 codes of a byte; the last may be of fewer k |
//! | Q8_0 | 32 k | 32 f16 scales; per 4 k 32 words of four codes, in the order of [`BYTE_ORDER`] |
//! | Q4_0 | 32 k | 32 f16 scales; per 8 k 32 words of eight codes, four in low nibbles, four in high ones, in that order |
//! | MXFP4 | 32 k | 32 bf16 scales; words as Q4_0 |
//! | Q4_1 | 32 k | as Q4_0, with 32 f16 minima after the scales |
//! | Q4_K | 256 k | 32 f16 scales, 32 f16 minima |
//! |  | per 32 k | 32 byte scales, 32 byte minima; words as Q4_0 |
//! | Q6_K | 256 k | 32 f16 scales |
//! |  | per 32 k | 32 byte scales of the first 16 k, 32 of the others |
//! |  | per 16 k | two rows of words of eight low nibbles; one of bit pairs, a byte of which has those of four k four apart |
//!
//! Sizes equal the file's, but that F8E4M3 has its scales for each row and not for a block of rows, and MXFP4's take two
//! bytes. Every piece starts on a multiple of 64 bytes from the block's beginning, except byte scales, and what follows
//! an odd number of F8E4M3's codes.

use crate::dtype::WeightFormat;

/// Outputs per block: two AVX-512 vectors, the width of the register tile.
pub(crate) const BLOCK_LANES: usize = 32;

/// The k, of four, whose code each byte of a word has: two bytes that are two apart become a pair of i16, and pairs
/// are of neighbouring k.
pub(crate) const BYTE_ORDER: [usize; 4] = [0, 2, 1, 3];

/// A row of f16: a scale of each lane.
pub(crate) const HALVES: usize = BLOCK_LANES * 2;
/// A row of f32.
pub(crate) const FLOATS: usize = BLOCK_LANES * 4;
/// A row of words: eight nibbles of each lane.
pub(crate) const WORDS: usize = BLOCK_LANES * 4;

/// Before the groups of F8E4M3.
pub(crate) const F8_HEADER: usize = 64;
/// Before the steps of a compact block of BF16.
pub(crate) const COMPACT_HEADER: usize = 64;
/// Four k of a compact block.
pub(crate) const COMPACT_STEP: usize = 2 * HALVES + BLOCK_LANES * 2;
pub(crate) const Q8_0_GROUP: usize = HALVES + 32 * BLOCK_LANES;
pub(crate) const Q4_0_GROUP: usize = HALVES + 4 * WORDS;
/// As large as one of Q4_0.
pub(crate) const MXFP4_GROUP: usize = Q4_0_GROUP;
pub(crate) const Q4_1_GROUP: usize = 2 * HALVES + 4 * WORDS;
/// Thirty-two k of Q4_K, and of Q6_K: two rows of bytes, then words.
pub(crate) const Q4K_SUB: usize = 2 * BLOCK_LANES + 4 * WORDS;
pub(crate) const Q6K_SUB: usize = 2 * BLOCK_LANES + 2 * 3 * WORDS;
pub(crate) const Q4K_GROUP: usize = 2 * HALVES + 8 * Q4K_SUB;
pub(crate) const Q6K_GROUP: usize = HALVES + 8 * Q6K_SUB;

/// A product may begin at multiples of so many k: those that lie in one word, or share a scale of activations.
pub(crate) const fn k_unit(format: WeightFormat) -> usize {
    match format {
        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::F8E4M3 { .. } => 1,
        WeightFormat::BF16 => 2,
        WeightFormat::Q8_0
        | WeightFormat::Q4_0
        | WeightFormat::Q4_1
        | WeightFormat::Q4K
        | WeightFormat::Q6K
        | WeightFormat::Mxfp4 => 32,
    }
}

/// Bytes of a block of rows of `k` values.
pub(crate) const fn block_bytes(format: WeightFormat, k: usize) -> usize {
    match format {
        WeightFormat::F32 => k * FLOATS,
        WeightFormat::F16 => k * HALVES,
        WeightFormat::BF16 => k.div_ceil(2) * WORDS,
        WeightFormat::F8E4M3 { scale_len } => {
            F8_HEADER + k.div_ceil(scale_len.get()) * FLOATS + k * BLOCK_LANES
        }
        WeightFormat::Q8_0 => k / 32 * Q8_0_GROUP,
        WeightFormat::Q4_0 => k / 32 * Q4_0_GROUP,
        WeightFormat::Mxfp4 => k / 32 * MXFP4_GROUP,
        WeightFormat::Q4_1 => k / 32 * Q4_1_GROUP,
        WeightFormat::Q4K => k / 256 * Q4K_GROUP,
        WeightFormat::Q6K => k / 256 * Q6K_GROUP,
    }
}
