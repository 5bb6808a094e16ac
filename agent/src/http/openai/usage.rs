//! Token counts of an answer, updated while it is generated, in OpenAI's shapes.

use crate::http::choice::Delta;
use crate::http::token_stream::Answer;
use serde::Serialize;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptTokensDetails,
    completion_tokens_details: CompletionTokensDetails,
    /// SGLang's place for `completion_tokens_details.reasoning_tokens`.
    reasoning_tokens: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct PromptTokensDetails {
    cached_tokens: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct CompletionTokensDetails {
    reasoning_tokens: usize,
}

/// The same in the shape of responses.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct ResponseUsage {
    input_tokens: usize,
    input_tokens_details: InputTokensDetails,
    output_tokens: usize,
    output_tokens_details: CompletionTokensDetails,
    total_tokens: usize,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct InputTokensDetails {
    cached_tokens: usize,
    /// Tokens that were cached for a price: none.
    cache_write_tokens: usize,
}

/// Counts a request's tokens. A prompt counts once, however many choices it has.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    prompt_tokens: usize,
    /// One element per part; `None` before its first event.
    cached_tokens: Vec<Option<usize>>,
    completion_tokens: usize,
    reasoning_tokens: usize,
    choices: usize,
}

/// Which events of a stream carry usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageEvents {
    /// An extra event at the end; null in the others.
    pub(crate) last: bool,
    /// Every event, over all choices so far.
    pub(crate) each: bool,
}

// === impl UsageEvents ===

impl UsageEvents {
    /// `usage` of an event: `given` for the last one, the counts in `tally` for others.
    pub(crate) fn of(self, given: Option<Usage>, tally: &Tally) -> Option<Option<Usage>> {
        let usage = given.or_else(|| self.each.then(|| tally.usage()));
        (self.last || self.each).then_some(usage)
    }
}

// === impl ResponseUsage ===

impl From<Usage> for ResponseUsage {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.prompt_tokens,
            input_tokens_details: InputTokensDetails {
                cached_tokens: usage.prompt_tokens_details.cached_tokens,
                cache_write_tokens: 0,
            },
            output_tokens: usage.completion_tokens,
            output_tokens_details: usage.completion_tokens_details,
            total_tokens: usage.total_tokens,
        }
    }
}

// === impl Tally ===

impl Tally {
    /// For prompts of these lengths with `choices` choices each.
    pub(crate) fn new(prompt_lens: &[usize], choices: u32) -> Self {
        let choices = choices as usize;
        Self {
            prompt_tokens: prompt_lens.iter().sum(),
            cached_tokens: vec![None; prompt_lens.len() * choices],
            completion_tokens: 0,
            reasoning_tokens: 0,
            choices,
        }
    }

    pub(crate) fn count(&mut self, part: usize, delta: &Delta) {
        self.add(part, delta.cached_tokens, delta.token_ids.len());
    }

    pub(crate) fn count_answer(&mut self, part: usize, answer: &Answer) {
        self.add(part, answer.cached_tokens, answer.token_ids.len());
    }

    /// Of the tokens that are counted, these are of reasoning.
    pub(crate) fn count_reasoning(&mut self, tokens: usize) {
        self.reasoning_tokens += tokens;
    }

    fn add(&mut self, part: usize, cached_tokens: u32, completion_tokens: usize) {
        let cached = &mut self.cached_tokens[part];
        *cached = (*cached).max(Some(cached_tokens as usize));
        self.completion_tokens += completion_tokens;
    }

    pub(crate) fn usage(&self) -> Usage {
        let prompts = self.cached_tokens.chunks(self.choices);
        // The choice that comes first computes the prompt, and the others find it in the cache.
        let cached = prompts.filter_map(|choices| choices.iter().copied().flatten().min());
        Usage {
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            total_tokens: self.prompt_tokens + self.completion_tokens,
            prompt_tokens_details: PromptTokensDetails {
                cached_tokens: cached.sum(),
            },
            completion_tokens_details: CompletionTokensDetails {
                reasoning_tokens: self.reasoning_tokens,
            },
            reasoning_tokens: self.reasoning_tokens,
        }
    }
}
