//! `Ngram`: drafts are what followed the last time that the request's latest tokens were there, in its prompt or
//! answer. Answers repeat prompts when they quote, edit or summarise them, and themselves in lists and code.
//!
//! The idea is prompt lookup decoding (Saxena, 2023, <https://github.com/apoorvumang/prompt-lookup-decoding>). SGLang's
//! `NGRAM` keeps a trie of all requests' answers; here a request sees its own tokens only, so that neither speed nor
//! memory depends on what others asked.

use super::Drafter;
use std::collections::HashMap;

/// The shortest run of tokens that counts as found again: shorter ones are followed by too many things.
const MIN_LEN: usize = 3;
/// Longer matches count as equal.
const MATCH_LEN_MAX: usize = 32;
/// The latest places of a run that are compared. A text of one repeated token has as many places as tokens.
const PLACES_MAX: usize = 32;
/// There is no earlier place.
const NONE: u32 = u32::MAX;

/// An index of one request's tokens; takes some 30 bytes for each.
#[derive(Debug, Default)]
pub(crate) struct Ngram {
    /// The end of the last run of these tokens.
    last: HashMap<[u32; MIN_LEN], u32>,
    /// By the end of a run, minus [`MIN_LEN`]: the end of the run before with the same tokens.
    earlier: Vec<u32>,
}

// === impl Ngram ===

impl Ngram {
    /// Indexes the runs of `tokens` that are new.
    fn index(&mut self, tokens: &[u32]) {
        for run in tokens.windows(MIN_LEN).skip(self.earlier.len()) {
            let run: [u32; MIN_LEN] = run.try_into().expect("windows have this length");
            let end = u32::try_from(self.earlier.len() + MIN_LEN).expect("a prompt fits 32 bits");
            let before = self.last.insert(run, end);
            self.earlier.push(before.unwrap_or(NONE));
        }
    }

    /// The ends of the runs before the last one with the same tokens, latest first.
    fn places(&self) -> impl Iterator<Item = usize> {
        let last = self.earlier.last().copied();
        let before = |&end: &u32| self.earlier.get(end as usize - MIN_LEN).copied();
        std::iter::successors(last.filter(|&end| end != NONE), move |end| {
            before(end).filter(|&end| end != NONE)
        })
        .map(|end| end as usize)
    }
}

impl Drafter for Ngram {
    fn propose(&mut self, tokens: &[u32], max: usize) -> Vec<u32> {
        self.index(tokens);
        let mut best: Option<(usize, usize)> = None;
        for end in self.places().take(PLACES_MAX) {
            let len = common_suffix(&tokens[..end], tokens);
            if best.is_none_or(|(best_len, _)| len > best_len) {
                best = Some((len, end));
            }
        }
        let Some((_, end)) = best else {
            return Vec::new();
        };
        // What repeats goes on repeating.
        tokens[end..].iter().copied().cycle().take(max).collect()
    }
}

/// Length of the longest common end, of at most [`MATCH_LEN_MAX`] tokens.
fn common_suffix(one: &[u32], other: &[u32]) -> usize {
    let pairs = one.iter().rev().zip(other.iter().rev());
    pairs
        .take(MATCH_LEN_MAX)
        .take_while(|(a, b)| a == b)
        .count()
}

#[cfg(test)]
mod tests;
