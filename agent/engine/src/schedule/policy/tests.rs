//! How the new-token ratio falls, and its bounds.

use super::*;

#[test]
fn the_ratio_falls_to_its_minimum_and_stays() {
    let mut ratio = NewTokenRatio::new(1.0);
    assert!((ratio.get() - 0.7).abs() < 1e-6);
    for _ in 0..700 {
        ratio.decay();
    }
    assert!((ratio.get() - 0.098).abs() < 1e-6);
}

#[test]
fn a_conservative_ratio_is_at_most_one() {
    assert!((NewTokenRatio::new(5.0).get() - 1.0).abs() < 1e-9);
}
