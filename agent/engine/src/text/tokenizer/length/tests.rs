//! How much of a text is read before it is refused, and that none is refused which fits.

use super::*;
use crate::text::tests::golden;
use std::sync::LazyLock;

static TOKENIZER: LazyLock<Tokenizer> =
    LazyLock::new(|| Tokenizer::from_folder(&golden("tiny-llama")).unwrap());

/// Measures to the end; the bytes that were tokenised, and the outcome.
fn measure(text: &str, max_tokens: usize) -> (usize, Result<(), EncodeError>) {
    let mut length = match TextLength::new(&TOKENIZER, text.into(), max_tokens) {
        Ok(length) => length,
        Err(too_long) => return (0, Err(EncodeError::TooLong(too_long))),
    };
    while !length.is_measured() {
        let before = length.measured_bytes;
        if let Err(why) = length.measure_piece(&TOKENIZER) {
            assert!(length.measured_bytes - before <= TextLength::PIECE_BYTES);
            return (length.measured_bytes, Err(why));
        }
    }
    (length.measured_bytes, Ok(()))
}

#[test]
fn a_text_beyond_the_longest_tokens_is_refused_unseen() {
    let text = "a ".repeat(16_000_000);
    let (measured, outcome) = measure(&text, 8192);
    assert_eq!(measured, 0);
    assert_eq!(
        outcome.unwrap_err().to_string(),
        "the text has 32000000 bytes, more than 8192 tokens can hold"
    );
}

#[test]
fn a_text_that_is_too_long_is_refused_after_the_contexts_length() {
    let longest = TOKENIZER.longest_token_bytes();
    assert!(
        longest > UNMEASURED_BYTES_PER_TOKEN,
        "or nothing is left to measure"
    );
    let max_tokens = 32_768;
    let text = "a ".repeat(max_tokens * (UNMEASURED_BYTES_PER_TOKEN + 1) / 2);
    let (measured, outcome) = measure(&text, max_tokens);
    assert!(
        matches!(outcome, Err(EncodeError::TooLong(_))),
        "{outcome:?}"
    );
    let needed = max_tokens + max_tokens / CUTS_SLACK_DIVISOR;
    assert!(
        measured <= 2 * needed + TextLength::PIECE_BYTES && measured < text.len() / 2,
        "{measured} of {} bytes",
        text.len()
    );
}

#[test]
fn one_word_without_blanks_is_measured_in_pieces_too() {
    let max_tokens = 4096;
    let text = "é".repeat(max_tokens * UNMEASURED_BYTES_PER_TOKEN / 2 + 1);
    let (measured, outcome) = measure(&text, max_tokens);
    assert!(
        matches!(outcome, Err(EncodeError::TooLong(_))),
        "{outcome:?}"
    );
    assert!(measured <= text.len());
}

#[test]
fn a_text_that_fits_is_never_refused() {
    let text = "the page is free, cached or held. ".repeat(4_000);
    let tokens = TOKENIZER.encode(&text, false).unwrap().len();
    let (_, outcome) = measure(&text, tokens);
    assert!(outcome.is_ok(), "{outcome:?}");
}
