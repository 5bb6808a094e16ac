//! Inputs near a known one: cut off, with bytes changed, left out, doubled, or a number made large. The same ones each time.

/// Inputs near one file.
const NEAR_MAX: usize = 96;
/// What a byte becomes: the ends of its range, and what text formats make much of.
const BYTES: &[u8] = &[
    0, 0xff, 0x7f, 0x80, b'"', b'{', b'[', b'\\', b'-', b'9', b'\n', b' ',
];
/// What numbers become, little-endian.
const NUMBERS: &[u64] = &[u64::MAX, u32::MAX as u64, 1 << 63, 1 << 31, 0];

pub(crate) fn inputs(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let count = NEAR_MAX.min(bytes.len() * 6);
    (0..count).map(move |nr| near(bytes, nr, nr * bytes.len() / count))
}

/// The change `nr` of `bytes`, at `at`.
fn near(bytes: &[u8], nr: usize, at: usize) -> Vec<u8> {
    let (head, tail) = bytes.split_at(at);
    match nr % 6 {
        0 => head.to_vec(),
        1 => [head, &tail[1..]].concat(),
        2 => [head, tail, tail].concat(),
        3 => {
            let mut changed = bytes.to_vec();
            changed[at] ^= 1 << (nr / 6 % 8);
            changed
        }
        4 => {
            let mut changed = bytes.to_vec();
            changed[at] = BYTES[nr / 6 % BYTES.len()];
            changed
        }
        _ => {
            let number = NUMBERS[nr / 6 % NUMBERS.len()].to_le_bytes();
            let replaced = number.len().min(tail.len());
            [head, &number[..replaced], &tail[replaced..]].concat()
        }
    }
}
