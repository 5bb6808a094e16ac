//! Turns the token ids of an answer into text, one at a time. A character that is split over
//! several tokens is held back until it is complete, so every piece is valid UTF-8 and the pieces,
//! joined, are the text of all ids decoded together.

use super::tokenizer::Tokenizer;
use std::sync::Arc;

/// The text of one answer in progress.
#[derive(Debug)]
pub struct Detokenizer {
    tokenizer: Arc<Tokenizer>,
    skip_special_tokens: bool,
    /// Special tokens that have text all the same.
    shown: Vec<u32>,
    text: Utf8Assembler,
    /// A first space may still have to be dropped.
    at_start: bool,
}

/// Bytes to text: invalid ones become U+FFFD, an unfinished character waits.
#[derive(Debug, Default)]
pub(super) struct Utf8Assembler {
    pending: Vec<u8>,
}

// === impl Detokenizer ===

impl Detokenizer {
    /// With `skip_special_tokens`, tokens like `<|im_end|>` produce no text.
    pub fn new(tokenizer: Arc<Tokenizer>, skip_special_tokens: bool) -> Self {
        Self {
            tokenizer,
            skip_special_tokens,
            shown: Vec::new(),
            text: Utf8Assembler::default(),
            at_start: true,
        }
    }

    /// Gives these special tokens text, although the others are skipped.
    #[must_use]
    pub fn showing(self, special: Vec<u32>) -> Self {
        Self {
            shown: special,
            ..self
        }
    }

    /// The text that `id` completes; empty while a character is unfinished.
    pub fn push(&mut self, id: u32) -> String {
        let skips_special = self.skip_special_tokens && !self.shown.contains(&id);
        let bytes = self.tokenizer.text_bytes(id, skips_special, self.at_start);
        self.at_start &= self.tokenizer.leaves_no_text(id, skips_special);
        self.text.push(bytes)
    }

    /// The remainder at the end of an answer: U+FFFD for an incomplete character.
    pub fn finish(&mut self) -> String {
        self.text.finish()
    }
}

// === impl Utf8Assembler ===

impl Utf8Assembler {
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        let mut rest = self.pending.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = after;
                    let Some(invalid) = error.error_len() else {
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[invalid..];
                }
            }
        }
        let held = self.pending.len() - rest.len();
        self.pending.drain(..held);
        text
    }

    pub(super) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

#[cfg(test)]
mod tests;
