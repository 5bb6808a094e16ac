//! Which places are worth a state.

use super::*;

const PROMPT: Stretch = Stretch {
    page_size: 16,
    prompt_len: 100,
    branch_at: None,
    kept_len: 0,
};

#[test]
fn the_last_full_page_of_a_prompt_is_kept_with_the_chunk_that_has_it() {
    assert_eq!(PROMPT.places(&(0..100)), [96]);
    assert!(PROMPT.places(&(0..64)).is_empty());
    assert_eq!(PROMPT.places(&(64..100)), [96]);
    assert!(PROMPT.places(&(96..100)).is_empty());
}

#[test]
fn a_prompt_of_less_than_a_page_is_not_kept() {
    let short = Stretch {
        prompt_len: 15,
        ..PROMPT
    };
    assert!(short.places(&(0..15)).is_empty());
}

#[test]
fn the_place_where_a_prompt_parted_from_an_earlier_one_is_kept_too() {
    let branched = Stretch {
        branch_at: Some(48),
        kept_len: 16,
        ..PROMPT
    };
    assert_eq!(branched.places(&(16..100)), [48, 96]);
    assert_eq!(branched.places(&(48..100)), [96]);
}

#[test]
fn long_stretches_are_kept_at_intervals() {
    let long = Stretch {
        prompt_len: 4096,
        ..PROMPT
    };
    assert!(long.places(&(0..200)).is_empty());
    assert_eq!(long.places(&(0..512)), [512]);
    let answer = Stretch {
        kept_len: 96,
        ..PROMPT
    };
    assert_eq!(answer.places(&(351..352)), [352]);
    assert!(answer.places(&(352..353)).is_empty());
    assert!(answer.places(&(300..301)).is_empty());
}
