//! Tokens as text and bytes, as returned with log probabilities.

use crate::http::choice::Finish;
use pd_engine::engine::TokenLogprob;
use pd_engine::text::Tokenizer;
use std::sync::Arc;

/// OpenAI's value for an impossible token; JSON has no infinity.
const IMPOSSIBLE: f32 = -9999.0;

/// Bytes and text of single tokens.
#[derive(Clone, Debug)]
pub(crate) struct TokenTexts(pub(crate) Arc<Tokenizer>);

// === impl TokenTexts ===

impl TokenTexts {
    pub(crate) fn bytes(&self, id: u32) -> Vec<u8> {
        self.0.token_bytes(id)
    }

    /// The token's text; incomplete characters become replacement characters.
    pub(crate) fn text(&self, id: u32) -> String {
        String::from_utf8_lossy(&self.bytes(id)).into_owned()
    }
}

/// A log probability that JSON can represent.
pub(crate) fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() {
        logprob
    } else {
        IMPOSSIBLE
    }
}

/// `tokens` without the end token of `finish`, which is not part of the text.
pub(crate) fn shown<'a>(tokens: &'a [TokenLogprob], finish: Option<&Finish>) -> &'a [TokenLogprob] {
    let matched = finish.and_then(Finish::matched_token);
    match tokens {
        [shown @ .., last] if Some(last.token) == matched => shown,
        all => all,
    }
}
