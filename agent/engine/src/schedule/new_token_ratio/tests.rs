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

#[test]
fn a_retraction_sets_the_share_that_answers_have_used_and_some_steps_more() {
    let mut ratio = NewTokenRatio::new(1.0);
    for _ in 0..700 {
        ratio.decay();
    }
    ratio.raise_over([(30, 100), (10, 100)].into_iter());
    assert!(
        (ratio.get() - 0.4).abs() < 1e-9,
        "(30 + 20 + 10 + 20) of 200"
    );
    ratio.raise_over([(90, 100)].into_iter());
    assert!((ratio.get() - 1.0).abs() < 1e-9, "no more than all");
    ratio.raise_over([(0, 4096)].into_iter());
    assert!(
        (ratio.get() - 0.098).abs() < 1e-6,
        "no less than the minimum"
    );
    ratio.raise_over(std::iter::empty());
    assert!((ratio.get() - 0.098).abs() < 1e-6, "no request is left");
}
