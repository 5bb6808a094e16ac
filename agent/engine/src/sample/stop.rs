//! When an answer ends: end ids, stop ids, stop strings and expressions; its length is the request's to
//! bound. Stop strings may begin in one token and end in another, so the text that could still become one
//! is kept. The agent's `StopStringFilter` cuts the answer's text before the stop string found here.

use crate::request::{FinishReason, StopMatch};
use crate::sample::params::SamplingParams;
use crate::sample::stop_regex::{RegexMatch, RegexMatcher};

/// Finds, of several strings, the one that is complete first in text that arrives in pieces, and
/// the longest of those that are complete simultaneously: the cuts do not affect the result.
#[derive(Clone, Debug)]
struct StopMatcher {
    stops: Vec<String>,
    /// End of the text so far that may be the start of one of `stops`.
    tail: String,
}

/// Decides after each token of one request whether it was the last.
#[derive(Debug)]
pub(crate) struct StopChecker {
    end_ids: Vec<u32>,
    stop_ids: Vec<u32>,
    /// End ids that do not end the answer.
    ignored_ids: Vec<u32>,
    min_new_tokens: usize,
    text: Option<StopText>,
}

/// Stop strings and expressions, with the detokenizer that turns tokens into text.
struct StopText {
    matcher: StopMatcher,
    regex: Option<RegexMatcher>,
    detokenize: Detokenize,
}

/// Text that a token adds to an answer; buffers incomplete characters.
pub(crate) type Detokenize = Box<dyn FnMut(u32) -> String + Send>;

// === impl StopMatcher ===

impl StopMatcher {
    /// None of `stops` is empty; see [`SamplingParams::validate`].
    fn new(stops: Vec<String>) -> Self {
        Self {
            stops,
            tail: String::new(),
        }
    }

    /// Takes the next piece of text; returns the stop string that it completes. Push nothing more
    /// after a match.
    fn push(&mut self, piece: &str) -> Option<String> {
        self.tail.push_str(piece);
        let found = self
            .stops
            .iter()
            .filter_map(|stop| Some((self.tail.find(stop)?, stop)));
        if let Some((_, stop)) = found.min_by_key(|&(at, stop)| (at + stop.len(), at)) {
            return Some(stop.clone());
        }
        let keep = self
            .stops
            .iter()
            .map(|stop| self.overlap(stop))
            .max()
            .unwrap_or(0);
        self.tail.drain(..self.tail.len() - keep);
        None
    }

    /// Length of the longest suffix of the text that is a prefix of `stop`.
    fn overlap(&self, stop: &str) -> usize {
        let starts = stop
            .char_indices()
            .map(|(at, _)| at)
            .skip(1)
            .collect::<Vec<_>>();
        let ends = starts
            .into_iter()
            .rev()
            .filter(|&len| len <= self.tail.len());
        ends.into_iter()
            .find(|&len| self.tail.as_bytes().ends_with(&stop.as_bytes()[..len]))
            .unwrap_or(0)
    }
}

// === impl StopChecker ===

impl StopChecker {
    /// `detokenize` is only used by requests with stop strings or expressions.
    pub(crate) fn new(
        params: &SamplingParams,
        end_ids: &[u32],
        detokenize: impl FnOnce() -> Detokenize,
    ) -> Self {
        let regex = params.stop_regex.matcher();
        let text = (regex.is_some() || !params.stop.is_empty()).then(|| StopText {
            matcher: StopMatcher::new(params.stop.clone()),
            regex,
            detokenize: detokenize(),
        });
        let (end_ids, ignored_ids) = if params.ignore_eos {
            (Vec::new(), end_ids.to_vec())
        } else {
            (end_ids.to_vec(), Vec::new())
        };
        Self {
            end_ids,
            ignored_ids,
            stop_ids: params.stop_token_ids.clone(),
            min_new_tokens: params.min_new_tokens as usize,
            text,
        }
    }

    /// Ids that must not be sampled as token number `output_len` of the answer.
    pub(crate) fn banned(&self, output_len: usize) -> impl Iterator<Item = u32> {
        let banned = output_len < self.min_new_tokens;
        let ids = self.end_ids.iter().chain(&self.stop_ids).copied();
        ids.filter(move |_| banned)
    }

    /// Ids that are drawn as token number `output_len` only where a grammar leaves no others.
    pub(crate) fn withheld(&self, output_len: usize) -> Vec<u32> {
        let ignored = self.ignored_ids.iter().copied();
        self.banned(output_len).chain(ignored).collect()
    }

    /// Why the answer ends with `token`, its token number `output_len`, if it does.
    pub(crate) fn check(&mut self, token: u32, output_len: usize) -> Option<FinishReason> {
        let past_min = output_len >= self.min_new_tokens;
        if past_min && (self.end_ids.contains(&token) || self.stop_ids.contains(&token)) {
            return Some(FinishReason::Stop {
                matched: StopMatch::Token(token),
            });
        }
        let matched = self.text.as_mut()?.push(token)?;
        Some(FinishReason::Stop { matched })
    }
}

// === impl StopText ===

impl StopText {
    /// What ends the answer in the text that `token` adds.
    fn push(&mut self, token: u32) -> Option<StopMatch> {
        let piece = (self.detokenize)(token);
        let Some(regex) = &mut self.regex else {
            return self.matcher.push(&piece).map(StopMatch::Text);
        };
        // The first of all to be complete, and of those together the string.
        for (at, next) in piece.char_indices() {
            let end = at + next.len_utf8();
            if let Some(stop) = self.matcher.push(&piece[at..end]) {
                return Some(StopMatch::Text(stop));
            }
            if let Some(RegexMatch { pattern, has_last }) = regex.push(next) {
                return Some(StopMatch::Pattern {
                    regex: pattern,
                    surplus_bytes: piece.len() - if has_last { end } else { at },
                });
            }
        }
        None
    }
}

impl std::fmt::Debug for StopText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.matcher.fmt(f)
    }
}

#[cfg(test)]
mod tests;
