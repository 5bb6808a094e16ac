//! The bound of a body, by the model.

use super::{BYTES_LEAST, BYTES_MOST, of_prompt};

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
