//! `random`: every worker with equal probability.

/// An index under `len` from 64 random bits, by the high half of a wide product.
pub(super) fn random(len: usize, draw: u64) -> usize {
    let wide = u128::from(draw) * (len as u128);
    usize::try_from(wide >> 64).expect("the high half of draw * len is under len")
}
