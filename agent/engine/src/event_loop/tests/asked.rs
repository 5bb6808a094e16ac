//! A request of these tests, and what its answer must be.

use super::Stand;
use super::device::{next_penalised, next_token};
use crate::answer::AnswerReceiver;
use crate::req::NOT_FINITE;
use crate::request::{FinishReason, GenerateRequest, LogprobOptions, StopMatch};
use crate::sample::params::SamplingParams;
use std::collections::BTreeSet;

/// Ends answers now and then, while the next step is in flight.
pub(super) const END: u32 = 3;
/// Instead of this token a device that fails draws none, as if no logit were finite.
pub(super) const LOST: u32 = 5;

/// A request, by what its tokens follow from.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Prompts of one family share their beginning.
    pub(super) family: u32,
    pub(super) prompt_len: usize,
    /// Of the prompt, the last tokens, which are the answer to those before: an earlier request may have left them in
    /// the cache.
    pub(super) answered: usize,
    pub(super) max_new_tokens: u32,
    pub(super) penalised: bool,
    pub(super) prompt_logprobs: bool,
    /// Some token ends it.
    pub(super) stops: bool,
}

impl Asked {
    pub(super) fn prompt(&self) -> Vec<u32> {
        let token = |place: u32| next_token(&[self.family, place / 20 * (self.family % 2), place]);
        let asked = u32::try_from(self.prompt_len - self.answered).unwrap();
        let mut prompt: Vec<_> = (0..asked).map(token).collect();
        while prompt.len() < self.prompt_len {
            prompt.push(next_token(&prompt));
        }
        prompt
    }

    pub(super) fn request(&self) -> GenerateRequest {
        GenerateRequest {
            rid: "test".to_owned(),
            input_ids: self.prompt(),
            sampling: SamplingParams {
                max_new_tokens: Some(self.max_new_tokens),
                temperature: 0.0,
                frequency_penalty: if self.penalised { 0.5 } else { 0.0 },
                stop_token_ids: if self.stops { vec![END] } else { Vec::new() },
                ..SamplingParams::default()
            },
            logprobs: LogprobOptions {
                return_logprob: self.prompt_logprobs,
                logprob_start_len: self.prompt_logprobs.then_some(0),
                ..LogprobOptions::default()
            },
            grammar: None,
            bootstrap: None,
            choice: 0,
        }
    }

    fn next(&self, tokens: &[u32]) -> u32 {
        if !self.penalised {
            return next_token(tokens);
        }
        let count = |token| {
            let answer = &tokens[self.prompt_len..];
            let count = answer.iter().filter(|&&other| other == token).count();
            (token, u32::try_from(count).unwrap())
        };
        let seen: BTreeSet<u32> = tokens.iter().copied().collect();
        let counts: Vec<_> = seen.into_iter().map(count).collect();
        next_penalised(tokens, &counts)
    }

    /// The answer, and why it ends.
    pub(super) fn expected(&self, stand: &Stand) -> (Vec<u32>, FinishReason) {
        let &Stand {
            capacity, loses, ..
        } = stand;
        let mut tokens = self.prompt();
        let len_max = (self.prompt_len + self.max_new_tokens as usize).min(capacity);
        while tokens.len() < len_max {
            let token = self.next(&tokens);
            if token == LOST && loses {
                let reason = NOT_FINITE.to_owned();
                let finish = FinishReason::Abort {
                    reason,
                    retriable: false,
                };
                return (tokens.split_off(self.prompt_len), finish);
            }
            tokens.push(token);
            if token == END && self.stops {
                let matched = StopMatch::Token(END);
                return (
                    tokens.split_off(self.prompt_len),
                    FinishReason::Stop { matched },
                );
            }
        }
        (tokens.split_off(self.prompt_len), FinishReason::Length)
    }

    /// Whether what has arrived is the answer, or the beginning of it if the request was aborted.
    pub(super) fn check(&self, mut answer: AnswerReceiver, aborted: bool, stand: &Stand) {
        let (expected, reason) = self.expected(stand);
        let mut tokens = Vec::new();
        let mut prompt = Vec::new();
        let mut finish = None;
        while let Some(event) = answer.try_recv() {
            tokens.extend(event.token_ids);
            prompt.extend(
                event
                    .prompt_logprobs
                    .into_iter()
                    .map(|logprob| logprob.token),
            );
            finish = event.finish.or(finish);
        }
        assert!(
            expected.starts_with(&tokens),
            "{self:?}: {tokens:?}, not {expected:?}"
        );
        if !aborted {
            assert_eq!(tokens, expected, "{self:?}");
            assert_eq!(finish, Some(reason), "{self:?}");
        }
        if self.prompt_logprobs && !tokens.is_empty() {
            assert_eq!(prompt, self.prompt(), "{self:?}");
        }
    }
}
