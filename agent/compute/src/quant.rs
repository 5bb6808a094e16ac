//! Reading GGUF's quantised blocks: the integer codes, and the f32 values they stand for.
//!
//! A block's value is `scale · code` or `scale · code ± offset`. Scales are f16 times at most an
//! 8-bit integer, or powers of two (MXFP4), and codes have at most 8 bits, so the product is exact in f32 and the value is
//! rounded at most once, by the addition: fused or not, every implementation gets the same bits.
//! Block layouts are those of ggml's `ggml-common.h`, checked against gguf-py.

use crate::dtype::WeightFormat;
use crate::e4m3;
use half::{bf16, f16};

/// Values in the largest block.
pub(crate) const MAX_BLOCK_LEN: usize = 256;

/// Adding it changes no value; adding +0 would change the sign of −0.
const NO_OFFSET: f32 = -0.0;

/// Writes the values of whole stored blocks to `out`; those of F8E4M3 without their scales, which lie elsewhere.
///
/// # Panics
/// When `bytes` is no whole number of blocks, or `out` has another length.
pub fn dequantize(format: WeightFormat, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(
        format.row_bytes(out.len()),
        Some(bytes.len()),
        "{} values of {format:?} do not take {} bytes",
        out.len(),
        bytes.len(),
    );
    let blocks = bytes.chunks_exact(format.block_bytes());
    let outs = out.chunks_exact_mut(format.block_len());
    match format {
        WeightFormat::F32 => {
            for (v, b) in out.iter_mut().zip(bytes.as_chunks().0) {
                *v = f32::from_le_bytes(*b);
            }
        }
        WeightFormat::F16 => {
            for (v, b) in out.iter_mut().zip(bytes.as_chunks().0) {
                *v = f16::from_le_bytes(*b).to_f32();
            }
        }
        WeightFormat::BF16 => {
            for (v, b) in out.iter_mut().zip(bytes.as_chunks().0) {
                *v = bf16::from_le_bytes(*b).to_f32();
            }
        }
        WeightFormat::F8E4M3 { .. } => {
            for (v, code) in out.iter_mut().zip(bytes) {
                *v = e4m3::value(*code);
            }
        }
        WeightFormat::Q8_0
        | WeightFormat::Q4_0
        | WeightFormat::Q4_1
        | WeightFormat::Q4K
        | WeightFormat::Q6K
        | WeightFormat::Mxfp4 => {
            blocks
                .zip(outs)
                .for_each(|(block, out)| dequantize_block(format, block, out));
        }
    }
}

fn dequantize_block(format: WeightFormat, block: &[u8], out: &mut [f32]) {
    let mut codes = [0; MAX_BLOCK_LEN];
    read_codes(format, block, &mut codes[..out.len()]);
    let sub_len = sub_block_len(format);
    let subs = out
        .chunks_exact_mut(sub_len)
        .zip(codes.chunks_exact(sub_len));
    for (sub, (out, codes)) in subs.enumerate() {
        let (scale, offset) = scale_and_offset(format, block, sub);
        for (v, code) in out.iter_mut().zip(codes) {
            *v = scale * code_value(format, *code) + offset;
        }
    }
}

/// Values that share a scale.
pub(crate) fn sub_block_len(format: WeightFormat) -> usize {
    if format == WeightFormat::Q6K { 16 } else { 32 }
}

pub(crate) fn scale_and_offset(format: WeightFormat, block: &[u8], sub: usize) -> (f32, f32) {
    match format {
        WeightFormat::Q4_1 => (f16_at(block, 0), f16_at(block, 2)),
        WeightFormat::Q4K => {
            let (scale, min) = q4k_scale_and_min(block, sub);
            let scale = f16_at(block, 0) * f32::from(scale);
            (scale, -(f16_at(block, 2) * f32::from(min)))
        }
        WeightFormat::Q6K => {
            let scale = f32::from(q6k_scale(block, sub));
            (f16_at(block, 208) * scale, NO_OFFSET)
        }
        WeightFormat::Q8_0 | WeightFormat::Q4_0 => (f16_at(block, 0), NO_OFFSET),
        WeightFormat::Mxfp4 => (power_of_two(block[0]), NO_OFFSET),
        WeightFormat::F32
        | WeightFormat::F16
        | WeightFormat::BF16
        | WeightFormat::F8E4M3 { .. } => (1.0, NO_OFFSET),
    }
}

pub(crate) fn code_value(format: WeightFormat, code: u8) -> f32 {
    match format {
        WeightFormat::Q8_0 => f32::from(code.cast_signed()),
        WeightFormat::Q4_0 => f32::from(code) - 8.0,
        WeightFormat::Q6K => f32::from(code) - 32.0,
        WeightFormat::Mxfp4 => E2M1[usize::from(code)],
        WeightFormat::Q4_1
        | WeightFormat::Q4K
        | WeightFormat::F32
        | WeightFormat::F16
        | WeightFormat::BF16
        | WeightFormat::F8E4M3 { .. } => f32::from(code),
    }
}

/// The values of four bits of E2M1.
const E2M1: [f32; 16] = [
    0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0,
];

/// Twice those values, which are integers.
pub(crate) static E2M1_TWICE: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// `2^(exponent − 127)`, which is NaN where all bits are ones.
pub fn power_of_two(exponent: u8) -> f32 {
    match exponent {
        // Below the normal numbers.
        0 => f32::from_bits(1 << 22),
        u8::MAX => f32::NAN,
        exponent => f32::from_bits(u32::from(exponent) << 23),
    }
}

/// The f16 at byte `at` of a block.
pub(crate) fn f16_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Scale and minimum of sub-block `sub` of a Q4_K block, six bits each, from the twelve bytes
/// after the two f16: the first four pairs in the low bits of bytes 0–7; of the last four pairs
/// the low nibbles in bytes 8–11 and the high bits on top of bytes 0–7.
pub(crate) fn q4k_scale_and_min(block: &[u8], sub: usize) -> (u8, u8) {
    let packed = &block[4..16];
    if sub < 4 {
        (packed[sub] & 63, packed[sub + 4] & 63)
    } else {
        let low = packed[sub + 4];
        (
            (low & 15) | (packed[sub - 4] >> 6 << 4),
            (low >> 4) | (packed[sub] >> 6 << 4),
        )
    }
}

/// Scale of the 16 values from `16 · sub` of a Q6_K block.
pub(crate) fn q6k_scale(block: &[u8], sub: usize) -> i8 {
    block[192 + sub].cast_signed()
}

/// The codes of one quantised block in k order, as stored (unsigned, or two's complement for Q8_0).
///
/// # Panics
/// On a format without codes.
pub(crate) fn read_codes(format: WeightFormat, block: &[u8], out: &mut [u8]) {
    match format {
        WeightFormat::Q8_0 => out.copy_from_slice(&block[2..34]),
        WeightFormat::Q4_0 => split_nibbles(&block[2..18], out),
        WeightFormat::Mxfp4 => split_nibbles(&block[1..17], out),
        WeightFormat::Q4_1 => split_nibbles(&block[4..20], out),
        WeightFormat::Q4K => {
            let pairs = block[16..144].chunks_exact(32);
            pairs
                .zip(out.chunks_exact_mut(64))
                .for_each(|(b, out)| split_nibbles(b, out));
        }
        WeightFormat::Q6K => read_q6k_codes(block, out),
        WeightFormat::F32
        | WeightFormat::F16
        | WeightFormat::BF16
        | WeightFormat::F8E4M3 { .. } => {
            unreachable!("{format:?} has values, not codes")
        }
    }
}

/// First all low nibbles, then all high ones.
fn split_nibbles(bytes: &[u8], out: &mut [u8]) {
    let (low, high) = out.split_at_mut(bytes.len());
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        *low = byte & 15;
        *high = byte >> 4;
    }
}

/// 128 bytes of low nibbles, then 64 bytes of two high bits; both in two halves of 128 values.
fn read_q6k_codes(block: &[u8], out: &mut [u8]) {
    let lows = block[..128].chunks_exact(64);
    let highs = block[128..192].chunks_exact(32);
    for ((low, high), out) in lows.zip(highs).zip(out.chunks_exact_mut(128)) {
        split_nibbles(low, out);
        for (i, v) in out.iter_mut().enumerate() {
            *v |= (high[i % 32] >> (i / 32 * 2) & 3) << 4;
        }
    }
}

#[cfg(test)]
mod tests;
