//! Gathers 32 stored rows into one packed block.

use super::layout::{
    self, BLOCK_LANES, BYTE_ORDER, F8_HEADER, FLOATS, HALVES, MXFP4_GROUP, Q4_0_GROUP, Q4_1_GROUP,
    Q4K_GROUP, Q4K_SUB, Q6K_GROUP, Q6K_SUB, Q8_0_GROUP, WORDS,
};
use crate::dtype::WeightFormat;
use crate::e4m3;
use crate::error::ComputeError;
use crate::quant::{self, MAX_BLOCK_LEN};
use crate::weight::{StoredRow, WeightSource};
use half::bf16;

/// The checked rows of a source.
pub(super) struct Rows<'a>(WeightSource<'a>);

type Lanes<'a> = [Option<StoredRow<'a>>; BLOCK_LANES];

impl<'a> Rows<'a> {
    pub(super) fn new(source: &WeightSource<'a>) -> Result<Self, ComputeError> {
        source.row_bytes()?;
        Ok(Self(*source))
    }

    /// `None` past the last row: a padding lane, which stays zero.
    pub(super) fn get(&self, row: usize) -> Option<StoredRow<'a>> {
        (row < self.0.n).then(|| self.0.row(row))
    }
}

/// Values of k that are gathered from all rows before the next: a whole number of every format's
/// blocks, and no more than a cache holds of a packed block.
const K_AT_A_TIME: usize = MAX_BLOCK_LEN;

/// Writes a block in `format` (a row's own, or F32 or BF16) to zeroed `out`.
pub(super) fn write_block(format: WeightFormat, lanes: &Lanes<'_>, k: usize, out: &mut [u8]) {
    if let WeightFormat::F8E4M3 { scale_len } = format {
        return write_f8(scale_len.get().min(k.max(1)), lanes, out);
    }
    let outs = out.chunks_mut(layout::block_bytes(format, K_AT_A_TIME));
    for (start, out) in (0..k).step_by(K_AT_A_TIME).zip(outs) {
        let ks = start..k.min(start + K_AT_A_TIME);
        for (lane, row) in lanes.iter().enumerate() {
            if let Some(row) = row {
                write_lane(format, row.part(&ks), lane, out);
            }
        }
    }
}

/// Writes one lane of the part of a block that `out` is.
fn write_lane(format: WeightFormat, row: StoredRow<'_>, lane: usize, out: &mut [u8]) {
    let mut values = [0.0; K_AT_A_TIME];
    match format {
        WeightFormat::F32 => {
            let items = expanded(row, &mut values).map(f32::to_le_bytes);
            scatter(out, lane * 4, BLOCK_LANES * 4, items);
        }
        WeightFormat::F16 => {
            scatter(
                out,
                lane * 2,
                HALVES,
                row.bytes.as_chunks::<2>().0.iter().copied(),
            );
        }
        WeightFormat::BF16 if row.format == format => {
            let (pairs, last) = row.bytes.as_chunks::<4>();
            scatter(out, lane * 4, WORDS, pairs.iter().copied());
            if let [low, high] = *last {
                out[pairs.len() * WORDS + lane * 4..][..2].copy_from_slice(&[low, high]);
            }
        }
        WeightFormat::BF16 => {
            let mut values = expanded(row, &mut values).map(|v| bf16::from_f32(v).to_bits());
            let pairs = std::iter::from_fn(|| {
                let even = u32::from(values.next()?);
                let odd = values.next().map_or(0, u32::from);
                Some((even | odd << 16).to_le_bytes())
            });
            scatter(out, lane * 4, WORDS, pairs);
        }
        WeightFormat::F8E4M3 { .. } => unreachable!("blocks are written whole"),
        WeightFormat::Q8_0 => write_groups(row, Q8_0_GROUP, out, |b, out| q8_0(b, lane, out)),
        WeightFormat::Q4_0 => write_groups(row, Q4_0_GROUP, out, |b, out| q4_0(b, lane, out)),
        WeightFormat::Mxfp4 => write_groups(row, MXFP4_GROUP, out, |b, out| mxfp4(b, lane, out)),
        WeightFormat::Q4_1 => write_groups(row, Q4_1_GROUP, out, |b, out| q4_1(b, lane, out)),
        WeightFormat::Q4K => write_groups(row, Q4K_GROUP, out, |b, out| q4k(b, lane, out)),
        WeightFormat::Q6K => write_groups(row, Q6K_GROUP, out, |b, out| q6k(b, lane, out)),
    }
}

/// The values, at most [`K_AT_A_TIME`].
fn expanded<'v>(
    row: StoredRow<'_>,
    values: &'v mut [f32; K_AT_A_TIME],
) -> impl Iterator<Item = f32> + use<'v> {
    let len = row.len();
    row.expand(&mut values[..len]);
    values[..len].iter().copied()
}

/// Groups of the values that share scales, behind their number.
fn write_f8(scale_len: usize, lanes: &Lanes<'_>, out: &mut [u8]) {
    let (header, groups) = out.split_at_mut(F8_HEADER);
    header[..size_of::<usize>()].copy_from_slice(&scale_len.to_ne_bytes());
    let groups = groups.chunks_mut(FLOATS + scale_len * BLOCK_LANES);
    for (group, out) in groups.enumerate() {
        let (scales, codes) = out.split_at_mut(FLOATS);
        for (lane, row) in lanes.iter().enumerate() {
            let Some(row) = row else { continue };
            let scale = (row.scales[group] * e4m3::OVER_F16).to_le_bytes();
            scales[lane * 4..lane * 4 + 4].copy_from_slice(&scale);
            let from = row.bytes[group * scale_len..].iter().take(scale_len);
            scatter(codes, lane, BLOCK_LANES, from.map(|code| [*code]));
        }
    }
}

/// Writes items at `first`, `first + stride`, …
fn scatter<const N: usize>(
    out: &mut [u8],
    first: usize,
    stride: usize,
    items: impl Iterator<Item = [u8; N]>,
) {
    for (place, item) in out.chunks_exact_mut(stride).zip(items) {
        place[first..first + N].copy_from_slice(&item);
    }
}

/// Writes each stored block of a row into its group.
fn write_groups(
    row: StoredRow<'_>,
    group_bytes: usize,
    out: &mut [u8],
    write: impl Fn(&[u8], &mut [u8]),
) {
    let blocks = row.bytes.chunks_exact(row.format.block_bytes());
    for (block, group) in blocks.zip(out.chunks_exact_mut(group_bytes)) {
        write(block, group);
    }
}

fn q8_0(block: &[u8], lane: usize, out: &mut [u8]) {
    let (scales, codes) = out.split_at_mut(HALVES);
    scales[lane * 2..lane * 2 + 2].copy_from_slice(&block[..2]);
    let words = block[2..].as_chunks::<4>().0.iter();
    scatter(
        codes,
        lane * 4,
        WORDS,
        words.map(|codes| BYTE_ORDER.map(|k| codes[k])),
    );
}

fn q4_0(block: &[u8], lane: usize, out: &mut [u8]) {
    let (scales, words) = out.split_at_mut(HALVES);
    scales[lane * 2..lane * 2 + 2].copy_from_slice(&block[..2]);
    write_nibbles(WeightFormat::Q4_0, block, lane, words);
}

fn mxfp4(block: &[u8], lane: usize, out: &mut [u8]) {
    let (scales, words) = out.split_at_mut(HALVES);
    // Every power of two that there is; the least one is below the normal numbers.
    let scale = bf16::from_f32(quant::power_of_two(block[0]));
    scales[lane * 2..lane * 2 + 2].copy_from_slice(&scale.to_le_bytes());
    write_nibbles(WeightFormat::Mxfp4, block, lane, words);
}

fn q4_1(block: &[u8], lane: usize, out: &mut [u8]) {
    let (scales, words) = out.split_at_mut(2 * HALVES);
    scales[lane * 2..lane * 2 + 2].copy_from_slice(&block[..2]);
    scales[HALVES + lane * 2..HALVES + lane * 2 + 2].copy_from_slice(&block[2..4]);
    write_nibbles(WeightFormat::Q4_1, block, lane, words);
}

fn q4k(block: &[u8], lane: usize, out: &mut [u8]) {
    let (halves, subs) = out.split_at_mut(2 * HALVES);
    halves[lane * 2..lane * 2 + 2].copy_from_slice(&block[..2]);
    halves[HALVES + lane * 2..HALVES + lane * 2 + 2].copy_from_slice(&block[2..4]);
    let mut codes = [0; MAX_BLOCK_LEN];
    quant::read_codes(WeightFormat::Q4K, block, &mut codes);
    let subs = subs
        .chunks_exact_mut(Q4K_SUB)
        .zip(codes.as_chunks::<32>().0);
    for (sub, (out, codes)) in subs.enumerate() {
        let (bytes, words) = out.split_at_mut(2 * BLOCK_LANES);
        (bytes[lane], bytes[BLOCK_LANES + lane]) = quant::q4k_scale_and_min(block, sub);
        scatter_nibbles(codes, lane, words);
    }
}

fn q6k(block: &[u8], lane: usize, out: &mut [u8]) {
    let (halves, subs) = out.split_at_mut(HALVES);
    halves[lane * 2..lane * 2 + 2].copy_from_slice(&block[208..210]);
    let mut codes = [0; MAX_BLOCK_LEN];
    quant::read_codes(WeightFormat::Q6K, block, &mut codes);
    let subs = subs
        .chunks_exact_mut(Q6K_SUB)
        .zip(codes.as_chunks::<32>().0);
    for (sub, (out, codes)) in subs.enumerate() {
        let (scales, words) = out.split_at_mut(2 * BLOCK_LANES);
        let halves = words.chunks_exact_mut(3 * WORDS).zip(codes.as_chunks().0);
        for (half, (words, codes)) in halves.enumerate() {
            let scale = quant::q6k_scale(block, 2 * sub + half);
            scales[half * BLOCK_LANES + lane] = scale.cast_unsigned();
            scatter(words, lane * 4, WORDS, six_bits(codes).into_iter());
        }
    }
}

/// The words of a lane: of low nibbles, and of pairs of high bits.
fn six_bits(codes: &[u8; 16]) -> [[u8; 4]; 3] {
    let low = codes.map(|code| code & 15);
    // Of a number in two's complement, so that it begins with its sign.
    let high = codes.map(|code| (code ^ 32) >> 4);
    let pairs = |k| high[k] | high[4 + k] << 2 | high[8 + k] << 4 | high[12 + k] << 6;
    let [first, last] = low.as_chunks::<8>().0 else {
        unreachable!("sixteen codes are twice eight");
    };
    [
        join_nibbles(first),
        join_nibbles(last),
        BYTE_ORDER.map(pairs),
    ]
}

/// The codes of a block of 32.
fn write_nibbles(format: WeightFormat, block: &[u8], lane: usize, out: &mut [u8]) {
    let mut codes = [0; 32];
    quant::read_codes(format, block, &mut codes);
    scatter_nibbles(&codes, lane, out);
}

fn scatter_nibbles(codes: &[u8; 32], lane: usize, out: &mut [u8]) {
    let words = codes.as_chunks::<8>().0.iter().map(join_nibbles);
    scatter(out, lane * 4, WORDS, words);
}

/// Eight codes below 16: the first four in the low halves of the bytes.
fn join_nibbles(codes: &[u8; 8]) -> [u8; 4] {
    BYTE_ORDER.map(|k| codes[k] | codes[4 + k] << 4)
}
