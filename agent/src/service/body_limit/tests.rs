//! The bound of a body, by the model.

use super::{ALL_BYTES, BYTES_LEAST, BYTES_MOST, all_together, of_prompt};

#[test]
fn a_body_holds_the_longest_prompt_that_json_can_make_of_the_context() {
    let (tokens, token_bytes) = (32_768, 16);
    assert!(of_prompt(tokens, token_bytes) > 6 * tokens * token_bytes);
    assert!(of_prompt(tokens, token_bytes) < BYTES_MOST);
}

#[test]
fn a_short_context_leaves_room_for_several_prompts_and_a_long_one_is_bounded() {
    assert_eq!(of_prompt(512, 8), BYTES_LEAST);
    assert_eq!(of_prompt(1 << 20, 128), BYTES_MOST);
    assert_eq!(of_prompt(usize::MAX, 128), BYTES_MOST);
}

#[test]
fn one_body_always_fits_among_all() {
    assert_eq!(all_together(None), ALL_BYTES);
    assert_eq!(all_together(Some(1)), ALL_BYTES);
    assert_eq!(all_together(Some(ALL_BYTES + 1)), ALL_BYTES + 1);
    const { assert!(BYTES_MOST <= ALL_BYTES) };
}
