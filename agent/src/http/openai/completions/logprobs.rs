//! Log probabilities in the shape of OpenAI's completions: parallel lists, one element per token.

use crate::http::openai::{TokenTexts, finite};
use pd_engine::engine::TokenLogprob;
use pd_engine::text::Detokenizer;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Default, Serialize)]
pub(crate) struct Logprobs {
    tokens: Vec<String>,
    token_logprobs: Vec<Option<f32>>,
    top_logprobs: Vec<Option<BTreeMap<String, f32>>>,
    /// Where each token begins in the answer, in characters.
    text_offset: Vec<usize>,
}

/// Where the next token of a text begins. Tokens that share a character share its offset.
#[derive(Debug)]
pub(crate) struct TextOffset {
    chars: usize,
    text: Detokenizer,
}

// === impl TextOffset ===

impl TextOffset {
    /// For a text that begins after `chars` characters.
    pub(crate) fn new(texts: &TokenTexts, chars: usize, skip_special_tokens: bool) -> Self {
        let text = Detokenizer::new(texts.0.clone(), skip_special_tokens);
        Self { chars, text }
    }

    /// Where `token` begins; the next begins after the characters that it completes.
    fn advance(&mut self, token: u32) -> usize {
        let begin = self.chars;
        self.chars += self.text.push(token).chars().count();
        begin
    }
}

// === impl Logprobs ===

impl Logprobs {
    /// Adds `tokens`, the first of which begins at `offset`.
    pub(crate) fn extend(
        &mut self,
        texts: &TokenTexts,
        tokens: &[TokenLogprob],
        offset: &mut TextOffset,
    ) {
        for token in tokens {
            let text = texts.text(token.token);
            let top = token.logprob.map(|sampled| {
                let likeliest = token
                    .top
                    .iter()
                    .map(|&(id, lp)| (texts.text(id), finite(lp)));
                let mut top: BTreeMap<String, f32> = likeliest.collect();
                top.insert(text.clone(), finite(sampled));
                top
            });
            self.text_offset.push(offset.advance(token.token));
            self.tokens.push(text);
            self.token_logprobs.push(token.logprob.map(finite));
            self.top_logprobs.push(top);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}

#[cfg(test)]
mod tests;
