//! Whether a text is too long for a context, measured piece by piece: a text that cannot fit is
//! refused after the work for a text of the context's length, in the memory of a piece.

use super::{EncodeError, Tokenizer};
use std::sync::Arc;

/// A text of up to this many bytes per token of the context is not measured: tokenising it whole
/// costs no more than a prompt that fits. Prose has about four.
const UNMEASURED_BYTES_PER_TOKEN: usize = 8;
/// A cut between pieces may split a word into more tokens. A text counts as too long when its
/// pieces have a quarter more tokens than the context; below that, its ids are counted.
const CUTS_SLACK_DIVISOR: usize = 4;

/// A text of `bytes` bytes has more than `max_tokens` tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the text has {bytes} bytes, more than {max_tokens} tokens can hold")]
pub struct TextTooLong {
    pub bytes: usize,
    pub max_tokens: usize,
}

/// The known length of one text.
#[derive(Clone, Debug)]
pub struct TextLength {
    text: Arc<str>,
    max_tokens: usize,
    /// Bytes and tokens of the pieces measured so far.
    measured_bytes: usize,
    tokens: usize,
}

// === impl TextLength ===

impl TextLength {
    /// Bytes tokenised at a time. Tokenising takes some 200 bytes of memory for each.
    pub const PIECE_BYTES: usize = 16 * 1024;

    /// For a text with a limit of `max_tokens` tokens.
    ///
    /// # Errors
    /// When even the vocabulary's longest token, that many times, is shorter than the text.
    pub fn new(
        tokenizer: &Tokenizer,
        text: Arc<str>,
        max_tokens: usize,
    ) -> Result<Self, TextTooLong> {
        let length = Self {
            text,
            max_tokens,
            measured_bytes: 0,
            tokens: 0,
        };
        let bytes_max = max_tokens.saturating_mul(tokenizer.longest_token_bytes());
        if length.text.len() > bytes_max {
            return Err(length.too_long());
        }
        Ok(length)
    }

    /// Whether measuring is complete, and the text can be tokenised whole.
    pub fn is_measured(&self) -> bool {
        let unmeasured = self.max_tokens.saturating_mul(UNMEASURED_BYTES_PER_TOKEN);
        self.text.len() <= unmeasured || self.measured_bytes == self.text.len()
    }

    /// Tokenises the next piece and drops its tokens.
    ///
    /// # Errors
    /// When the text is too long, or the vocabulary cannot represent the piece.
    pub fn measure_piece(&mut self, tokenizer: &Tokenizer) -> Result<(), EncodeError> {
        let rest = &self.text[self.measured_bytes..];
        let piece = &rest[..piece_end(rest)];
        self.tokens += tokenizer.encode(piece, false)?.len();
        self.measured_bytes += piece.len();
        if self.tokens > self.max_tokens + self.max_tokens / CUTS_SLACK_DIVISOR {
            return Err(EncodeError::TooLong(self.too_long()));
        }
        Ok(())
    }

    fn too_long(&self) -> TextTooLong {
        TextTooLong {
            bytes: self.text.len(),
            max_tokens: self.max_tokens,
        }
    }
}

/// The end of the next piece of `rest`: before a space in its second half, as words begin with one.
fn piece_end(rest: &str) -> usize {
    if rest.len() <= TextLength::PIECE_BYTES {
        return rest.len();
    }
    let end = rest.floor_char_boundary(TextLength::PIECE_BYTES);
    match rest[..end].rfind(char::is_whitespace) {
        Some(blank) if blank > TextLength::PIECE_BYTES / 2 => blank,
        Some(_) | None => end,
    }
}

#[cfg(test)]
mod tests;
