//! `Jumps`: drafts that a request's grammar proposes. Where it forces the text that comes next, such as the rest of a
//! property's name, these are the tokens of that text: SGLang's jump-forward decoding.
//!
//! They are drawn as any drafts, under masks that allow nothing else, so answers are those of a run without jumps;
//! docs/decisions/0102.

use super::switch::{Lately, Switch};

#[derive(Debug)]
pub(crate) struct Jumps {
    switch: Switch,
    /// The next step to settle computes drafts of the grammar.
    jumping: bool,
}

/// Tokens of one jump, at most.
pub(crate) const JUMP_MAX: usize = 16;

// === impl Jumps ===

impl Jumps {
    /// Those of one more request of an engine whose jumps went `lately` as they did.
    pub(crate) fn new(lately: &Lately) -> Self {
        Self {
            switch: lately.switch(),
            jumping: false,
        }
    }

    /// How many of `max` tokens a jump may have.
    pub(crate) fn wanted(&self, max: usize) -> usize {
        if self.switch.is_on() {
            max.min(JUMP_MAX)
        } else {
            0
        }
    }

    /// The next step computes these drafts, as many of them as there is room for.
    pub(crate) fn jump(&mut self, drafts: &[u32]) {
        self.jumping = !drafts.is_empty();
    }

    /// A step has drawn `drawn` tokens over `drafts` drafts. Returns whether they were the grammar's.
    pub(crate) fn verified(&mut self, drafts: usize, drawn: usize, row_cost: f64) -> bool {
        let jumped = std::mem::take(&mut self.jumping) && drafts > 0;
        if !self.switch.is_on() {
            self.switch.rest(drawn);
        } else if jumped {
            let accepted = drawn.saturating_sub(1);
            self.switch.verified(drafts, accepted, row_cost);
        }
        jumped
    }
}
