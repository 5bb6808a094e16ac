//! `PrefillAdder`: how much of a request fits into the step being built. Pure arithmetic; the
//! caller holds the queue and the cache. Source: docs/sglang-protocol.md#scheduling.

use super::{CLIP_MAX_NEW_TOKENS, ScheduleLimits};
use crate::kvcache::spaces::{PerSpace, Spaces};

/// SGLang's `PrefillAdder`.
#[derive(Debug)]
pub(crate) struct PrefillAdder {
    spaces: Spaces,
    /// SGLang's `rem_total_token_offset`: slots promised to running and admitted requests.
    promised: PerSpace,
    /// SGLang's `rem_input_tokens`.
    input_left: usize,
    /// SGLang's `rem_chunk_tokens`; `None`: no chunking.
    chunk_left: Option<usize>,
    logit_rows_left: usize,
    admitted: usize,
    /// A request was cut: the step ends with it, so that only one at a time is computed in chunks.
    closed: bool,
}

/// A request's demand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// Tokens that are computed or in flight, of which it has the window's pages.
    pub(crate) from: usize,
    /// Tokens of these whose window's pages others have as well.
    pub(crate) shared: usize,
    /// Tokens to compute before its next one can be sampled; they begin on a page boundary.
    pub(crate) extend_len: usize,
    /// Of these, the first ones that have pages already: cached ones, computed again for a recurrent state or a window.
    pub(crate) held_len: usize,
    /// Tokens its answer may still get.
    pub(crate) remaining_len: usize,
    /// Of `extend_len`, the leading tokens without wanted logits; all but the last unless prompt
    /// logprobs are requested.
    pub(crate) without_logits: usize,
}

/// SGLang's `AddReqResult`, with what was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// All of it.
    Whole,
    /// This many tokens, whole pages; the rest in later steps.
    Chunk(usize),
    /// Not before others have returned memory.
    NoTokens,
    /// Not in this step.
    Full,
}

// === impl PrefillAdder ===

impl PrefillAdder {
    /// `promised`: the expected growth of running requests; `decode_rows`: their number in this
    /// step.
    pub(crate) fn new(
        limits: &ScheduleLimits,
        spaces: Spaces,
        promised: PerSpace,
        decode_rows: usize,
    ) -> Self {
        let chunk = limits.chunked_prefill_size;
        Self {
            spaces,
            promised,
            input_left: limits.max_prefill_tokens,
            chunk_left: chunk.map(|len| len.saturating_sub(decode_rows).max(spaces.page_size)),
            logit_rows_left: limits.prompt_logprob_rows,
            admitted: 0,
            closed: false,
        }
    }

    /// Whether `candidate` may start, if `available` slots are free or evictable. All of it must
    /// fit into memory, its answer included, even if only a chunk is computed now.
    pub(crate) fn admit(&mut self, candidate: Candidate, available: PerSpace) -> Admission {
        let len = self.whole_len(candidate);
        let mut whole = self.spaces.growth(candidate.from, len, candidate.shared);
        whole.full -= candidate.held_len;
        if !(whole + self.promised).fits(available) {
            return Admission::NoTokens;
        }
        self.go_on(candidate)
    }

    /// As [`Self::admit`], for a request that has begun. It holds memory, so it must continue for
    /// that memory to be returned. Its answer is reserved with its last chunk.
    pub(crate) fn go_on(&mut self, candidate: Candidate) -> Admission {
        let admission = self.cut(candidate);
        if admission == Admission::Whole {
            let now = candidate.extend_len.next_multiple_of(self.spaces.page_size);
            let after = self.whole_len(candidate) - now;
            self.promised += self
                .spaces
                .growth(candidate.from + now, after, candidate.shared);
        }
        admission
    }

    /// Slots for the candidate with its answer, whose last token never gets KV.
    fn whole_len(&self, candidate: Candidate) -> usize {
        let answer = candidate.remaining_len.min(CLIP_MAX_NEW_TOKENS);
        let len = candidate.extend_len + answer.saturating_sub(1);
        len.next_multiple_of(self.spaces.page_size)
    }

    /// How much of the candidate fits into this step.
    fn cut(&mut self, candidate: Candidate) -> Admission {
        let Candidate {
            extend_len,
            without_logits,
            ..
        } = candidate;
        let with_logits = without_logits + self.logit_rows_left;
        let wants_rows = extend_len - without_logits > 1;
        let most = match (self.chunk_left, wants_rows) {
            _ if self.closed => 0,
            (None, false) if self.admitted > 0 && extend_len > self.input_left => 0,
            (None, false) => usize::MAX,
            (None, true) => with_logits,
            (Some(chunk), wants_rows) => {
                let chunk = chunk.min(self.input_left);
                if wants_rows {
                    chunk.min(with_logits)
                } else {
                    chunk
                }
            }
        };
        let (len, admission) = if extend_len <= most {
            (extend_len, Admission::Whole)
        } else {
            let len = most / self.spaces.page_size * self.spaces.page_size;
            (
                len,
                if len == 0 {
                    Admission::Full
                } else {
                    Admission::Chunk(len)
                },
            )
        };
        self.closed |= admission != Admission::Whole;
        self.spend(len, len.saturating_sub(without_logits));
        admission
    }

    fn spend(&mut self, len: usize, logit_rows: usize) {
        self.admitted += usize::from(len > 0);
        self.input_left = self.input_left.saturating_sub(len);
        self.logit_rows_left = self
            .logit_rows_left
            .saturating_sub(logit_rows.saturating_sub(1));
        if let Some(chunk) = &mut self.chunk_left {
            *chunk = chunk.saturating_sub(len);
        }
    }
}

#[cfg(test)]
mod tests;
