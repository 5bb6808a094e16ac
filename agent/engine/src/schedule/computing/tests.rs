//! Who waits for whose prompt.

use super::*;

const PAGE: usize = 16;

fn awaited(prompt: &[u32], tokens: &[u32], cached: usize) -> bool {
    let computing = Computing {
        prompts: vec![&[9, 9, 9], prompt],
    };
    computing.is_awaited(std::iter::empty(), tokens, cached, PAGE)
}

/// Tokens that others have as well, then some of its own: those below and above 0 differ.
fn prompt(shared: u32, own: i32) -> Vec<u32> {
    let from = if own < 0 { 1000 } else { 2000 };
    (0..shared).chain(from..from + own.unsigned_abs()).collect()
}

#[test]
fn one_with_the_same_prompt_waits_unless_the_cache_has_it() {
    let same = prompt(100, 0);
    assert!(awaited(&same, &same, 0));
    assert!(awaited(&same, &same, 48));
    assert!(!awaited(&same, &same, 96));
    assert!(!awaited(&same, &prompt(0, 100), 0));
}

#[test]
fn one_that_shares_less_than_half_of_what_it_lacks_does_not_wait() {
    let computed = prompt(64, -40);
    assert!(awaited(&computed, &prompt(64, 64), 0));
    assert!(!awaited(&computed, &prompt(64, 65), 0));
    // Half a page is not shared.
    assert!(!awaited(&prompt(63, -40), &prompt(63, 50), 0));
}

#[test]
fn few_tokens_are_computed_again() {
    assert!(!awaited(&prompt(31, -9), &prompt(31, 0), 0));
    assert!(awaited(&prompt(32, -9), &prompt(32, 0), 0));
}

#[test]
fn requests_of_the_same_step_count() {
    let tokens = prompt(100, 0);
    let same_step = std::iter::once(&*tokens);
    assert!(Computing::default().is_awaited(same_step, &tokens, 0, PAGE));
}
