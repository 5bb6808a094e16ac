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

    /// What the token after `drafts` is penalised by, if they follow the tokens so far.
    pub(crate) fn token_counts(&self, drafts: &[u32]) -> impl Iterator<Item = TokenCount> {
        let drafted = |token: u32| drafts.iter().filter(|&&draft| draft == token).count();
        let count = move |token: u32, seen: u32| TokenCount {
            token,
            output_count: seen.saturating_add(u32::try_from(drafted(token)).unwrap_or(u32::MAX)),
        };
        self.output_counts.iter().flat_map(move |seen| {
            let is_new = |&(place, draft): &(usize, &u32)| {
                !seen.contains_key(draft) && !drafts[..place].contains(draft)
            };
            let new = drafts.iter().enumerate().filter(is_new);
            let all = seen.iter().map(|(&token, &seen)| (token, seen));
            all.chain(new.map(|(_, &draft)| (draft, 0)))
                .map(|(token, seen)| count(token, seen))
                .collect::<Vec<_>>()
        })
    }
}
