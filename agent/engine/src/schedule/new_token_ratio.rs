//! `NewTokenRatio`: the share of `max_new_tokens` that running requests are expected to use. It
//! falls with every successful step and rises when memory runs out. Source:
//! docs/sglang-protocol.md#scheduling.

use super::CLIP_MAX_NEW_TOKENS;
use crate::req::Req;

/// SGLang's `SGLANG_INIT_NEW_TOKEN_RATIO`.
const INIT: f64 = 0.7;
/// SGLang's `SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR`: the ratio falls to this share of its start.
const MIN_FACTOR: f64 = 0.14;
/// SGLang's `SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS`.
const DECAY_STEPS: f64 = 600.0;
/// SGLang's `SGLANG_RETRACT_DECODE_STEPS`: after a retraction, space for this many more tokens
/// each.
const RETRACT_STEPS: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NewTokenRatio {
    current: f64,
    min: f64,
    decay: f64,
}

// === impl NewTokenRatio ===

impl NewTokenRatio {
    pub(crate) fn new(schedule_conservativeness: f32) -> Self {
        let current = (INIT * f64::from(schedule_conservativeness)).min(1.0);
        let min = current * MIN_FACTOR;
        Self {
            current,
            min,
            decay: (current - min) / DECAY_STEPS,
        }
    }

    pub(crate) fn get(&self) -> f64 {
        self.current
    }

    /// After a decode step for which memory sufficed.
    pub(crate) fn decay(&mut self) {
        self.current = (self.current - self.decay).max(self.min);
    }

    /// After a retraction that left `running` with the memory.
    pub(crate) fn raise<'a>(&mut self, running: impl Iterator<Item = &'a Req>) {
        self.raise_over(running.map(|req| (req.output_len(), req.len_max - req.prompt_len)));
    }

    /// `answers` are lengths so far and at most.
    fn raise_over(&mut self, answers: impl Iterator<Item = (usize, usize)>) {
        let (mut used, mut allowed) = (0, 0);
        for (len, len_max) in answers {
            used += len + RETRACT_STEPS;
            allowed += len_max;
        }
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let ratio = used as f64 / allowed.max(1) as f64;
        self.current = ratio.clamp(self.min, 1.0);
    }

    /// Tokens that `req` is expected to grow by.
    pub(crate) fn expected_len(&self, req: &Req) -> usize {
        let most = req.remaining_len().min(CLIP_MAX_NEW_TOKENS);
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most 4096, times at most 1"
        )]
        let expected = (most as f64 * self.current).ceil() as usize;
        expected
    }
}

#[cfg(test)]
mod tests;
