//! Log probabilities in the shape of OpenAI's completions: lists side by side, one place a token.

use crate::http::openai::{TokenTexts, finite};
use pd_engine::engine::TokenLogprob;
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

// === impl Logprobs ===

impl Logprobs {
    /// Adds `tokens`, the first of which begins at `offset`; returns where the next begins.
    pub(crate) fn extend(
        &mut self,
        texts: &TokenTexts,
        tokens: &[TokenLogprob],
        offset: usize,
    ) -> usize {
        let mut offset = offset;
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
            self.text_offset.push(offset);
            offset += text.chars().count();
            self.tokens.push(text);
            self.token_logprobs.push(token.logprob.map(finite));
            self.top_logprobs.push(top);
        }
        offset
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }
}
