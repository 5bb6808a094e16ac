//! The layout of a test: pieces in another order than at their source, gaps between them, and
//! guards around the registered memory.

use anyhow::{Result, ensure};
use pd_verbs::HostMemory;

/// Three packets at an MTU of 4096 bytes.
pub(crate) const PIECE_BYTES: usize = 12_000;
pub(crate) const PIECES: usize = 256;
const GAP_BYTES: usize = 80;
/// Memory on both sides of the region that no key grants access to.
pub(crate) const GUARD_BYTES: usize = 4096;
pub(crate) const REGION_BYTES: usize = PIECES * (PIECE_BYTES + GAP_BYTES);
/// Content of memory that was never written.
const UNTOUCHED: u8 = 0xa5;

pub(crate) fn src_offset(piece: usize) -> usize {
    // 77 and 256 have no common divisor, so pieces do not overlap.
    piece * 77 % PIECES * PIECE_BYTES
}

pub(crate) fn dst_offset(piece: usize) -> usize {
    piece * (PIECE_BYTES + GAP_BYTES)
}

fn byte(piece: usize, i: usize) -> u8 {
    (piece.wrapping_mul(31) ^ i.wrapping_mul(7) ^ (i >> 8)).to_le_bytes()[0]
}

/// The writer's memory: all pieces.
pub(crate) fn fill_source(memory: &HostMemory) -> Result<()> {
    for piece in 0..PIECES {
        let bytes: Vec<u8> = (0..PIECE_BYTES).map(|i| byte(piece, i)).collect();
        memory.write(src_offset(piece), &bytes)?;
    }
    Ok(())
}

/// The receiver's memory, guards included, before anything arrives.
pub(crate) fn fill_untouched(memory: &HostMemory) -> Result<()> {
    Ok(memory.write(0, &vec![UNTOUCHED; memory.len()])?)
}

/// Checks the receiver's memory, every byte.
pub(crate) fn check(memory: &HostMemory, arrived: bool) -> Result<()> {
    let mut expected = vec![UNTOUCHED; memory.len()];
    if arrived {
        for piece in 0..PIECES {
            let start = GUARD_BYTES + dst_offset(piece);
            let place = &mut expected[start..start + PIECE_BYTES];
            place
                .iter_mut()
                .enumerate()
                .for_each(|(i, b)| *b = byte(piece, i));
        }
    }
    let mut bytes = vec![0; memory.len()];
    memory.read(0, &mut bytes)?;
    let wrong = bytes.iter().zip(&expected).position(|(a, b)| a != b);
    ensure!(
        wrong.is_none(),
        "byte {wrong:?} of {} is not as it should be",
        bytes.len()
    );
    Ok(())
}
