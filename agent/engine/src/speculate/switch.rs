//! `Switch`: whether a request's drafts pay. A draft is a row more in the step; accepted, it saves the request's row
//! of a step. So drafts pay where the share that is accepted is above the cost of a draft's row, taken as a share of
//! what a token costs without drafts ([`super::row_cost`]).
//!
//! ```text
//! On ── share < cost ──► Off for 32 tokens ──► Trial ── share ≥ 1.25 · cost ──► On
//!                         ▲ 64, 128 … 1,024      │
//!                         └──────────────────────┘ share below
//! ```

/// Drafts over which a share is taken, at least: a window ends with the step that reaches it.
const WINDOW: usize = 16;
/// A trial must do better than what switched drafts off, or small differences would switch at each window.
const MARGIN: f64 = 1.25;
/// Tokens without drafts after the first failure. It doubles with each trial that fails: a trial costs up to [`WINDOW`]
/// rows, half of the tokens before it at first and 2 % at last.
const REST_MIN: usize = 32;
const REST_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct Switch {
    state: State,
    drafts: usize,
    accepted: usize,
    /// Tokens of the next rest.
    rest: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    On,
    Off { tokens_left: usize },
    Trial,
}

// === impl Switch ===

impl Default for Switch {
    fn default() -> Self {
        Self {
            state: State::On,
            drafts: 0,
            accepted: 0,
            rest: REST_MIN,
        }
    }
}

impl Switch {
    pub(crate) fn is_on(&self) -> bool {
        match self.state {
            State::On | State::Trial => true,
            State::Off { .. } => false,
        }
    }

    /// The request has got `tokens` without drafts, because it is off.
    pub(crate) fn rest(&mut self, tokens: usize) {
        if let State::Off { tokens_left } = self.state {
            self.state = match tokens_left.saturating_sub(tokens) {
                0 => State::Trial,
                tokens_left => State::Off { tokens_left },
            };
        }
    }

    /// Of `drafts` rows `accepted` were right; a row costs `row_cost` of a token without drafts.
    pub(crate) fn verified(&mut self, drafts: usize, accepted: usize, row_cost: f64) {
        self.drafts += drafts;
        self.accepted += accepted;
        if self.drafts < WINDOW {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a share of a few rows")]
        let share = self.accepted as f64 / self.drafts as f64;
        (self.drafts, self.accepted) = (0, 0);
        let least = match self.state {
            State::Trial => row_cost * MARGIN,
            State::On | State::Off { .. } => row_cost,
        };
        if share >= least.min(1.0) {
            self.state = State::On;
            self.rest = REST_MIN;
        } else {
            self.state = State::Off {
                tokens_left: self.rest,
            };
            self.rest = (self.rest * 2).min(REST_MAX);
        }
    }
}

#[cfg(test)]
mod tests;
