//! A step's results on their way back.

use pd_compute::{Backend, ComputeError, HostBytes, Ticket};

use crate::batch::{BatchRow, Drawn, RowOutput};
use crate::sample::logprobs::SampleTables;

/// A step on its way. Results come with [`Launched::wait`].
#[derive(Debug)]
pub(crate) struct Launched<B: Backend> {
    pub(super) tokens: B::Ticket,
    pub(super) logprobs: B::Ticket,
    /// With the tables' columns; absent when no row wants the likeliest tokens.
    pub(super) top: Option<(B::Ticket, B::Ticket, usize)>,
    pub(super) shapes: Vec<RowShape>,
}

/// Logit rows of one batch row: those of prompt logprobs, then one if it draws.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowShape {
    prompt_logprobs: usize,
    draws: bool,
}

// === impl Launched ===

impl<B: Backend> Launched<B> {
    /// Blocks until the step is done. One output per batch row, in order.
    ///
    /// # Errors
    /// When the device faulted; it runs nothing more.
    pub(crate) fn wait(self) -> Result<Vec<RowOutput>, ComputeError> {
        let tokens = self.tokens.wait()?;
        let logprobs = self.logprobs.wait()?;
        let (top_tokens, top_logprobs, top_n_max) = match self.top {
            Some((tokens, logprobs, top_n_max)) => (tokens.wait()?, logprobs.wait()?, top_n_max),
            None => (HostBytes::default(), HostBytes::default(), 0),
        };
        let tables = SampleTables {
            tokens: tokens.as_slice(),
            logprobs: logprobs.as_slice(),
            top_tokens: top_tokens.as_slice(),
            top_logprobs: top_logprobs.as_slice(),
            top_n_max,
        };
        let mut rows = 0..;
        let mut next_row = || tables.row(rows.next().expect("rows are counted"));
        let output = |shape: &RowShape| RowOutput {
            prompt_logprobs: (0..shape.prompt_logprobs)
                .filter_map(|_| next_row())
                .collect(),
            drawn: match shape.draws.then(&mut next_row) {
                None => Drawn::NotYet,
                Some(None) => Drawn::NotFinite,
                Some(Some(token)) => Drawn::Token(token),
            },
        };
        Ok(self.shapes.iter().map(output).collect())
    }
}

// === impl RowShape ===

impl RowShape {
    pub(super) fn of(row: &BatchRow) -> Self {
        Self {
            prompt_logprobs: row.prompt_logprob_positions().len(),
            draws: row.draws(),
        }
    }
}
