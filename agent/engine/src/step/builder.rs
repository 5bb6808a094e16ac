//! `StepBuilder`: gathers the requests of a step into lists, and the lists into one plan.

use super::lists::{Lists, to_u32};
use super::sampling::Ahead;
use super::{Drafting, Step, StepId, StepPlan, StepRow};
use crate::active::Active;
use crate::grammar::MaskWorkers;
use crate::kvcache::pool::state::Snapshot;
use crate::kvcache::req_to_token::ReqToTokenPool;
use crate::metrics::EngineMetrics;
use pd_compute::NO_ROW;

/// Which steps are padded to few shapes, so that the device can replay them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Padding {
    /// Largest decode step that is padded; 0 pads none.
    pub(crate) graph_max_seqs: usize,
    /// Largest number of requests in a step.
    pub(crate) max_seqs: usize,
}

/// Builds one step after the other; keeps the lists' memory.
#[derive(Debug)]
pub(crate) struct StepBuilder {
    padding: Padding,
    last: StepId,
    rows: Vec<StepRow>,
    /// Each request computes one position and has one output; none has drafts.
    is_decode: bool,
    drafting: Drafting,
    mask_workers: MaskWorkers,
    lists: Lists,
}

// === impl StepBuilder ===

impl StepBuilder {
    pub(crate) fn new(padding: Padding, metrics: &EngineMetrics) -> Self {
        Self {
            padding,
            last: StepId::default(),
            rows: Vec::new(),
            is_decode: true,
            drafting: Drafting::Off,
            mask_workers: MaskWorkers::new(metrics.grammars.mask_seconds.clone()),
            lists: Lists::default(),
        }
    }

    /// For a model with a draft layer, which makes an entry of each row.
    pub(crate) fn with_drafting(self, drafting: Drafting) -> Self {
        Self { drafting, ..self }
    }

    fn makes_entries(&self) -> bool {
        matches!(self.drafting, Drafting::Entries { .. })
    }

    /// The last step that was built.
    pub(crate) fn last(&self) -> StepId {
        self.last
    }

    /// Adds the next `len` positions of a request, which has pages for them, and keeps the states of `snapshots`.
    ///
    /// # Panics
    /// If it needs the token of a step other than the one before this.
    pub(crate) fn push<T>(
        &mut self,
        active: &mut Active<T>,
        len: usize,
        snapshots: &[Snapshot],
        req_to_token: &ReqToTokenPool,
    ) {
        let id = StepId(self.last.0 + 1);
        let carried = active.carried();
        let drawing = active.drawing();
        let row = active.hand(len, id);
        let Lists {
            token_ids,
            carried_rows,
            logit_rows,
            sampling,
            ..
        } = &mut self.lists;
        let first = token_ids.len();
        let (start, end) = (row.positions.start, row.positions.end);
        if let Some(carried) = carried {
            assert!(
                carried.step == self.last && len == 1,
                "only the tokens of the step before are carried"
            );
            token_ids.push(0);
            carried_rows.push(to_u32(carried.output));
        } else {
            token_ids.extend(&active.req.tokens[start..end]);
            carried_rows.resize(token_ids.len(), NO_ROW);
        }
        for position in active.req.prompt_logprob_positions(&row.positions) {
            logit_rows.push(to_u32(first + position - start));
            let given = active.req.tokens[position + 1];
            sampling.push_given(given, active.req.top_logprobs_num());
            sampling.ask(active.req.token_ids_logprob());
        }
        if row.draws {
            active.draw(id, logit_rows.len());
            logit_rows.push(to_u32(token_ids.len() - 1));
            let top_n = active.req.top_logprobs_num();
            sampling.push_sample(&active.req, Ahead::Unknown(drawing), top_n);
            sampling.ask(active.req.token_ids_logprob());
        }
        if self.makes_entries() {
            let output = self.lists.logit_rows.len().saturating_sub(1);
            self.lists.push_next(&active.req, &row.positions, output);
        }
        self.is_decode &= row.draws && len == 1 && row.prompt_logprobs == 0;
        let kv = &mut active.kv;
        self.lists
            .push_places(&row.positions, req_to_token, kv.idx, |position| {
                kv.is_written(position)
            });
        self.lists
            .push_window_places(&row.positions, req_to_token, kv.idx);
        self.lists.push_state(&row.positions, kv, snapshots);
        self.rows.push(row);
    }

    /// Adds the last token of a request and `drafts` of those after it, which has pages for them, to draw at each
    /// place.
    ///
    /// # Panics
    /// If a step in flight draws a token of the request.
    pub(crate) fn push_drafts<T>(
        &mut self,
        active: &mut Active<T>,
        drafts: Vec<u32>,
        req_to_token: &ReqToTokenPool,
    ) {
        let id = StepId(self.last.0 + 1);
        let row = active.hand_drafts(drafts, id);
        let Lists {
            token_ids,
            carried_rows,
            logit_rows,
            sampling,
            ..
        } = &mut self.lists;
        let first = token_ids.len();
        token_ids.push(active.req.tokens[row.positions.start]);
        token_ids.extend(&row.drafts);
        carried_rows.resize(token_ids.len(), NO_ROW);
        let output = logit_rows.len();
        active.draw(id, output);
        let top_n = active.req.top_logprobs_num();
        for place in 0..row.positions.len() {
            logit_rows.push(to_u32(first + place));
            sampling.push_sample(&active.req, Ahead::Drafts(&row.drafts[..place]), top_n);
            sampling.ask(active.req.token_ids_logprob());
        }
        if self.makes_entries() {
            self.lists.push_next(&active.req, &row.positions, output);
        }
        self.is_decode = false;
        let kv = &mut active.kv;
        let (from, drafts) = (row.positions.start, row.drafts.len());
        let state = kv.state.as_ref();
        let snapshots = state.map(|state| state.draft_snapshots(from, drafts));
        self.lists
            .push_places(&row.positions, req_to_token, kv.idx, |position| {
                kv.is_written(position)
            });
        self.lists
            .push_window_places(&row.positions, req_to_token, kv.idx);
        self.lists
            .push_state(&row.positions, kv, &snapshots.unwrap_or_default());
        self.rows.push(row);
    }

    /// The step, if it computes anything.
    pub(crate) fn finish(&mut self) -> Option<(Step, StepPlan)> {
        if self.rows.is_empty() {
            return None;
        }
        self.last.0 += 1;
        let step = Step {
            id: self.last,
            rows: std::mem::take(&mut self.rows),
        };
        let num_seqs = self.lists.kv_lens.len();
        let is_padded = self.is_decode && num_seqs <= self.padding.graph_max_seqs;
        let padded = is_padded.then(|| padded_seqs(num_seqs).min(self.padding.max_seqs));
        let stride = self.page_table_stride();
        let masks = std::mem::take(&mut self.lists.sampling.masks);
        let masks = self.mask_workers.begin(masks);
        let mut plan = self.lists.take_plan(stride, padded);
        plan.masks = masks;
        plan.shape.drafting = self.drafting;
        self.is_decode = true;
        Some((step, plan))
    }

    /// Pages of the longest request. A step that is replayed has few different ones.
    fn page_table_stride(&self) -> usize {
        let longest = self.lists.longest_pages();
        if self.padding.graph_max_seqs > 0 {
            longest.next_power_of_two()
        } else {
            longest
        }
    }
}

/// Sizes of replayed steps: few different ones, with little padding.
fn padded_seqs(num_seqs: usize) -> usize {
    match num_seqs {
        0..=4 => num_seqs.next_power_of_two(),
        5..=64 => num_seqs.next_multiple_of(8),
        _ => num_seqs.next_multiple_of(16),
    }
}
