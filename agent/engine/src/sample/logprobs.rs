//! Converts the sampler's tables to the logprobs that a request receives.

use crate::engine::TokenLogprob;
use pd_compute::NO_TOKEN;

/// Tables of one step as read back; rows are the step's logit rows.
#[derive(Debug)]
pub(crate) struct SampleTables<'a> {
    pub(crate) tokens: &'a [u32],
    pub(crate) logprobs: &'a [f32],
    /// `[rows][top_n_max]`.
    pub(crate) top_tokens: &'a [u32],
    pub(crate) top_logprobs: &'a [f32],
    pub(crate) top_n_max: usize,
}

// === impl SampleTables ===

impl SampleTables<'_> {
    /// `None`: no logit of the row is finite.
    pub(crate) fn row(&self, row: usize) -> Option<TokenLogprob> {
        let token = self.tokens[row];
        if token == NO_TOKEN {
            return None;
        }
        let tops = row * self.top_n_max..(row + 1) * self.top_n_max;
        let tokens = self.top_tokens[tops.clone()].iter().copied();
        let top = tokens
            .zip(self.top_logprobs[tops].iter().copied())
            .take_while(|&(token, _)| token != NO_TOKEN)
            .collect();
        Some(TokenLogprob {
            token,
            logprob: Some(self.logprobs[row]),
            top,
        })
    }
}
