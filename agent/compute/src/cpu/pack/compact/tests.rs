//! Compact blocks, bit by bit.

use super::*;
use crate::cpu::pack::AlignedBytes;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// A whole block of values with sizes of sixteen powers of two, but `strays` that are far smaller.
fn block(k: usize, strays: usize, rng: &mut StdRng) -> Vec<u8> {
    let mut values: Vec<u16> = (0..k * BLOCK_LANES)
        .map(|_| {
            let exponent = 112 + rng.random_range(0..16);
            rng.random::<u16>() & 0x807f | exponent << 7
        })
        .collect();
    for stray in 0..strays {
        let at = (stray * 7919 + 4) % values.len();
        values[at] = [0x0000, 0x8001, 0x1f81, 0x7f80][stray % 4];
    }
    values.into_iter().flat_map(u16::to_le_bytes).collect()
}

/// The block as steps and exceptions say it, one value after another.
fn whole_again(compact: &[u8], k: usize) -> Vec<u8> {
    let mut whole = Vec::new();
    for step in compact[COMPACT_HEADER..exceptions_at(k)].chunks_exact(COMPACT_STEP) {
        let (low, nibbles) = step.split_at(2 * ROW_LEN);
        for place in 0..2 * ROW_LEN {
            let (row, column) = (place / ROW_LEN, place % ROW_LEN);
            let (half, of_half) = (column / BLOCK_LANES, column % BLOCK_LANES);
            let byte = of_half / 8 * 16 + half * 8 + of_half % 8;
            let nibble = nibbles[byte] >> (4 * row) & 15;
            whole.extend([low[row * ROW_LEN + byte], compact[usize::from(nibble)]]);
        }
    }
    let exceptions: &[Exception] = bytemuck::cast_slice(&compact[exceptions_at(k)..]);
    for exception in exceptions.iter().take_while(|e| **e != Exception::END) {
        let value = exception.step as usize * 2 * ROW_LEN + usize::from(exception.place);
        whole[value * 2..][..2].copy_from_slice(&exception.value.to_le_bytes());
    }
    whole
}

fn slice(block: &mut AlignedBytes) -> &mut [u8] {
    let len = block.as_slice().len();
    // SAFETY: borrowed for as long.
    unsafe { std::slice::from_raw_parts_mut(block.as_mut_ptr(), len) }
}

#[test]
fn a_compact_block_has_every_bit_of_the_whole_one() {
    let mut rng = StdRng::seed_from_u64(1);
    for (k, strays) in [(32, 0), (32, 2), (64, 1), (576, 36), (1536, 5)] {
        let whole = block(k, strays, &mut rng);
        let mut compact = AlignedBytes::zeroed(block_bytes(k)).expect("memory");
        assert!(
            write_block(&whole, k, slice(&mut compact)),
            "{strays} of {k}"
        );
        assert_eq!(whole_again(compact.as_slice(), k), whole, "{strays} of {k}");
        assert!(k < 500 || block_bytes(k) * 100 < whole.len() * 77, "{k}");
    }
}

#[test]
fn a_block_of_many_exponents_is_refused() {
    let mut rng = StdRng::seed_from_u64(2);
    for (k, strays) in [(32, 3), (576, 37), (576, 2000)] {
        let whole = block(k, strays, &mut rng);
        let mut compact = AlignedBytes::zeroed(block_bytes(k)).expect("memory");
        assert!(
            !write_block(&whole, k, slice(&mut compact)),
            "{strays} of {k}"
        );
    }
}
