//! `Switch`: whether a request's drafts pay. A draft is a row more in the step; accepted, it saves the request's row
//! of a step. So drafts pay where the share that is accepted is above the cost of a draft's row, taken as a share of
//! what a token costs without drafts ([`super::row_cost`]).
//!
//! ```text
//! On ── share < cost ──► Off for 32 tokens ──► Trial ── share ≥ 1.25 · cost ──► On
//!                         ▲ 64, 128 … 1,024      │
//!                         └──────────────────────┘ share below
//! ```
//!
//! What one model drafts for all requests is right or wrong for most of them alike, so a request begins where their last
//! windows left off ([`Lately`]), and short answers do not each begin with drafts that do not pay. A draft that costs more
//! than a token without drafts, as that of a draft model as large as the model, never pays.

use parking_lot::Mutex;
use std::sync::Arc;

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
    course: Course,
    drafts: usize,
    accepted: usize,
    lately: Lately,
}

/// How the windows of the requests that share it went; tokens without drafts count whosever they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lately(Arc<Mutex<Course>>);

#[derive(Clone, Copy, Debug)]
struct Course {
    state: State,
    /// Tokens of the next rest.
    rest: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    On,
    Off { tokens_left: usize },
    Trial,
}

// === impl Lately ===

impl Lately {
    /// The switch of one more request.
    pub(crate) fn switch(&self) -> Switch {
        Switch {
            course: *self.0.lock(),
            drafts: 0,
            accepted: 0,
            lately: self.clone(),
        }
    }
}

// === impl Switch ===

impl Switch {
    pub(crate) fn is_on(&self) -> bool {
        match self.course.state {
            State::On | State::Trial => true,
            State::Off { .. } => false,
        }
    }

    /// The request has got `tokens` without drafts, because it is off.
    pub(crate) fn rest(&mut self, tokens: usize) {
        self.course.rest(tokens);
        self.lately.0.lock().rest(tokens);
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
        self.course.judge(share, row_cost);
        let mut lately = self.lately.0.lock();
        // Those that began with this one fail with it, which is one failure.
        if !matches!(lately.state, State::Off { .. }) || self.is_on() {
            lately.judge(share, row_cost);
        }
    }
}

// === impl Course ===

impl Default for Course {
    fn default() -> Self {
        Self {
            state: State::On,
            rest: REST_MIN,
        }
    }
}

impl Course {
    fn rest(&mut self, tokens: usize) {
        if let State::Off { tokens_left } = self.state {
            self.state = match tokens_left.saturating_sub(tokens) {
                0 => State::Trial,
                tokens_left => State::Off { tokens_left },
            };
        }
    }

    fn judge(&mut self, share: f64, row_cost: f64) {
        let least = match self.state {
            // All that are right suffice, unless they cost more than what they save.
            State::Trial => (row_cost * MARGIN).min(row_cost.max(1.0)),
            State::On | State::Off { .. } => row_cost,
        };
        if share >= least {
            *self = Self::default();
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
