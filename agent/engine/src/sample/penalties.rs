//! `Penalties`: which tokens a request has seen, for those that ask for penalties.

use super::params::SamplingParams;
use pd_compute::TokenCount;
use std::collections::HashMap;

/// Occurrences in the answer by token; tokens of the prompt only have 0.
#[derive(Debug, Default)]
pub(crate) struct Penalties {
    output_counts: Option<HashMap<u32, u32>>,
}

// === impl Penalties ===

impl Penalties {
    pub(crate) fn new(params: &SamplingParams, prompt: &[u32]) -> Self {
        let seen = || prompt.iter().map(|&token| (token, 0)).collect();
        Self {
            output_counts: params.has_penalties().then(seen),
        }
    }

    /// Whether the next sample depends on every token before it.
    pub(crate) fn are_on(&self) -> bool {
        self.output_counts.is_some()
    }

    pub(crate) fn push(&mut self, token: u32) {
        if let Some(counts) = &mut self.output_counts {
            *counts.entry(token).or_default() += 1;
        }
    }

    pub(crate) fn token_counts(&self) -> impl Iterator<Item = TokenCount> {
        let counts = self.output_counts.iter().flatten();
        counts.map(|(&token, &output_count)| TokenCount {
            token,
            output_count,
        })
    }
}
