//! Results of a launched step.

use crate::batch::{BatchRow, RowOutput, Sampled};
use crate::engine::RequestId;
use crate::sample::logprobs::SampleTables;
use pd_compute::{Backend, ComputeError, DeviceBuffer, HostBytes, SampleOut, Ticket};

/// A launched step. [`Launched::wait`] returns its results.
#[derive(Debug)]
pub(crate) struct Launched<B: Backend> {
    tokens: B::Ticket,
    logprobs: B::Ticket,
    /// With the tables' columns; absent if no row wants the likeliest tokens.
    top: Option<(B::Ticket, B::Ticket, usize)>,
    rows: Vec<LaunchedRow>,
    /// It was replayed as a graph.
    is_graph: bool,
}

/// A batch row and its logit rows: those of prompt logprobs, then one if it samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaunchedRow {
    id: RequestId,
    prompt_logprobs: usize,
    samples: bool,
}

// === impl Launched ===

impl<B: Backend> Launched<B> {
    /// Enqueues the read-back of the first `wanted` rows of `out`, behind the step that fills them.
    pub(super) fn new(
        backend: &B,
        out: &SampleOut<B>,
        wanted: usize,
        (rows, is_graph): (Vec<LaunchedRow>, bool),
    ) -> Self {
        let read = |buffer: &B::Buffer, len: usize| backend.read(&buffer.slice(0..len));
        let columns = out.top_n_max;
        let read_top = || {
            let len = wanted * columns;
            let tokens = read(&out.top_tokens, len);
            (tokens, read(&out.top_logprobs, len), columns)
        };
        Self {
            tokens: read(&out.tokens, wanted),
            logprobs: read(&out.logprobs, wanted),
            top: (columns > 0).then(read_top),
            rows,
            is_graph,
        }
    }

    /// Whether the device replays it as a graph.
    pub(crate) fn is_graph(&self) -> bool {
        self.is_graph
    }

    /// The requests of the step, in order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = RequestId> {
        self.rows.iter().map(|row| row.id)
    }

    /// Blocks until the step is done and its results are read back. One output per batch row, in order.
    ///
    /// # Errors
    /// When the device faulted; it executes nothing more.
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
        let output = |launched: &LaunchedRow| RowOutput {
            prompt_logprobs: (0..launched.prompt_logprobs)
                .filter_map(|_| next_row())
                .collect(),
            sampled: match launched.samples.then(&mut next_row) {
                None => Sampled::NotYet,
                Some(None) => Sampled::NotFinite,
                Some(Some(token)) => Sampled::Token(token),
            },
        };
        Ok(self.rows.iter().map(output).collect())
    }
}

// === impl LaunchedRow ===

impl LaunchedRow {
    pub(super) fn of(row: &BatchRow) -> Self {
        Self {
            id: row.req.id,
            prompt_logprobs: row.prompt_logprob_positions().len(),
            samples: row.samples(),
        }
    }

    pub(super) fn num_outputs(&self) -> usize {
        self.prompt_logprobs + usize::from(self.samples)
    }
}
