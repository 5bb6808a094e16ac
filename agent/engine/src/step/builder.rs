//! `StepBuilder`: gathers the requests of a step into lists, and the lists into one plan.

use super::sampling::{Ahead, SamplingRows};
use super::{Places, Step, StepId, StepPlan, StepRow, StepShape};
use crate::active::Active;
use crate::kvcache::pool::ReqKv;
use crate::kvcache::pool::state::Snapshot;
use crate::kvcache::req_to_token::ReqToTokenPool;
use pd_compute::NO_ROW;
use pd_compute::kv::NO_SLOT;
use std::ops::Range;

/// Lists begin at multiples of this many words, as kernels load them.
const ALIGNMENT_WORDS: usize = 4;

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
    carries: bool,
    lists: Lists,
}

#[derive(Debug, Default)]
struct Lists {
    token_ids: Vec<u32>,
    positions: Vec<u32>,
    q_indptr: Vec<u32>,
    kv_lens: Vec<u32>,
    out_slots: Vec<u32>,
    logit_rows: Vec<u32>,
    carried_rows: Vec<u32>,
    state_read: Vec<u32>,
    state_write: Vec<u32>,
    state_snapshots: Vec<u32>,
    /// Of all requests, one after another; the ends are in `page_ends`.
    pages: Vec<u32>,
    page_ends: Vec<usize>,
    sampling: SamplingRows,
}

// === impl StepBuilder ===

impl StepBuilder {
    pub(crate) fn new(padding: Padding) -> Self {
        Self {
            padding,
            last: StepId::default(),
            rows: Vec::new(),
            is_decode: true,
            carries: false,
            lists: Lists::default(),
        }
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
            self.carries = true;
        } else {
            token_ids.extend(&active.req.tokens[start..end]);
            carried_rows.resize(token_ids.len(), NO_ROW);
        }
        for position in active.req.prompt_logprob_positions(&row.positions) {
            logit_rows.push(to_u32(first + position - start));
            let given = active.req.tokens[position + 1];
            sampling.push_given(given, active.req.top_logprobs_num());
        }
        if row.draws {
            active.draw(id, logit_rows.len());
            logit_rows.push(to_u32(token_ids.len() - 1));
            sampling.push_sample(&active.req, Ahead::Unknown(drawing));
        }
        self.is_decode &= row.draws && len == 1 && row.prompt_logprobs == 0;
        let kv = &mut active.kv;
        self.lists.push_places(&row.positions, req_to_token, kv);
        self.lists.push_state(&row.positions, kv, snapshots);
        self.rows.push(row);
    }

    /// Adds the last token of a request and `drafts` of those after it, which has pages for them, to draw at each place.
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
        active.draw(id, logit_rows.len());
        for place in 0..row.positions.len() {
            logit_rows.push(to_u32(first + place));
            sampling.push_sample(&active.req, Ahead::Drafts(&row.drafts[..place]));
        }
        self.is_decode = false;
        let kv = &mut active.kv;
        let (from, drafts) = (row.positions.start, row.drafts.len());
        let state = kv.state.as_ref();
        let snapshots = state.map(|state| state.draft_snapshots(from, drafts));
        self.lists.push_places(&row.positions, req_to_token, kv);
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
        let num_outputs = self.lists.logit_rows.len();
        let num_seqs = self.lists.kv_lens.len();
        let is_padded = self.is_decode && num_seqs <= self.padding.graph_max_seqs;
        let page_table_stride = self.page_table_stride();
        let mut plan = StepPlan {
            id: step.id,
            shape: StepShape {
                num_outputs,
                page_table_stride,
                carries: self.carries,
                is_padded,
                has_states: !self.lists.state_read.is_empty(),
                ..StepShape::default()
            },
            ..StepPlan::default()
        };
        let page_table = self.lists.page_table(page_table_stride);
        if is_padded {
            let padded = padded_seqs(num_seqs).min(self.padding.max_seqs);
            self.lists.pad(padded);
        }
        self.lists.pack(page_table, &mut plan);
        self.lists.clear();
        self.is_decode = true;
        self.carries = false;
        Some((step, plan))
    }

    /// Pages of the longest request. A step that is replayed has few different ones.
    fn page_table_stride(&self) -> usize {
        let starts = [0].into_iter().chain(self.lists.page_ends.iter().copied());
        let lens = starts
            .zip(&self.lists.page_ends)
            .map(|(start, end)| end - start);
        let longest = lens.max().unwrap_or(0);
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

// === impl Lists ===

impl Lists {
    fn clear(&mut self) {
        let Self {
            token_ids,
            positions,
            q_indptr,
            kv_lens,
            out_slots,
            logit_rows,
            carried_rows,
            state_read,
            state_write,
            state_snapshots,
            pages,
            page_ends,
            sampling,
        } = self;
        for list in [
            token_ids,
            positions,
            q_indptr,
            kv_lens,
            out_slots,
            logit_rows,
            carried_rows,
            state_read,
            state_write,
            state_snapshots,
            pages,
        ] {
            list.clear();
        }
        page_ends.clear();
        sampling.clear();
    }

    fn push_places(&mut self, positions: &Range<usize>, req_to_token: &ReqToTokenPool, kv: &ReqKv) {
        if self.q_indptr.is_empty() {
            self.q_indptr.push(0);
        }
        self.q_indptr.push(to_u32(self.token_ids.len()));
        self.kv_lens.push(to_u32(positions.end));
        for position in positions.clone() {
            self.positions.push(to_u32(position));
            self.out_slots.push(if kv.is_written(position) {
                req_to_token.slot(kv.idx, position)
            } else {
                NO_SLOT
            });
        }
        let used = positions.end.div_ceil(req_to_token.page_size());
        let pages = &req_to_token.pages(kv.idx)[..used];
        self.pages.extend(pages.iter().map(|page| page.0));
        self.page_ends.push(self.pages.len());
    }

    /// Where the request's recurrent state is read and written, if it has one.
    fn push_state(&mut self, positions: &Range<usize>, kv: &mut ReqKv, snapshots: &[Snapshot]) {
        let Some(state) = &mut kv.state else {
            return;
        };
        let read = state.read().map_or(NO_SLOT, |slot| slot.0);
        self.state_read.push(read);
        self.state_write.push(state.working().0);
        let first = self.state_snapshots.len();
        self.state_snapshots
            .resize(first + positions.len(), NO_SLOT);
        for snapshot in snapshots {
            self.state_snapshots[first + snapshot.len - 1 - positions.start] = snapshot.slot.0;
        }
    }

    /// The pages of each request in a row of `stride`.
    fn page_table(&self, stride: usize) -> Vec<u32> {
        let mut table = Vec::with_capacity(self.page_ends.len() * stride);
        let mut start = 0;
        for (row, &end) in (1..).zip(&self.page_ends) {
            table.extend(&self.pages[start..end]);
            table.resize(row * stride, 0);
            start = end;
        }
        table
    }

    /// Pads to `num_seqs` with rows of one token each whose results are discarded, and rounds up
    /// lengths that vary with requests, so that steps have few shapes.
    fn pad(&mut self, num_seqs: usize) {
        let has_states = !self.state_read.is_empty();
        for row in self.kv_lens.len()..num_seqs {
            if has_states {
                self.state_read.push(NO_SLOT);
                self.state_write.push(NO_SLOT);
                self.state_snapshots.push(NO_SLOT);
            }
            self.token_ids.push(0);
            self.positions.push(0);
            self.out_slots.push(NO_SLOT);
            self.q_indptr.push(to_u32(row + 1));
            self.kv_lens.push(1);
            self.logit_rows.push(to_u32(row));
            self.carried_rows.push(NO_ROW);
            self.sampling.push_padding();
        }
        self.sampling.pad_lists();
    }

    /// Concatenates the lists into the plan's words.
    fn pack(&self, mut page_table: Vec<u32>, plan: &mut StepPlan) {
        let StepPlan {
            id: _,
            shape,
            words,
            places,
        } = plan;
        shape.num_tokens = self.token_ids.len();
        shape.num_seqs = self.kv_lens.len();
        shape.num_logit_rows = self.logit_rows.len();
        shape.top_n_max = self.sampling.top_n_max;
        page_table.resize(shape.num_seqs * shape.page_table_stride, 0);
        let carried_rows: &[u32] = if shape.carries {
            &self.carried_rows
        } else {
            &[]
        };
        let mut put = |list: &[u32]| {
            words.resize(words.len().next_multiple_of(ALIGNMENT_WORDS), 0);
            let start = words.len();
            words.extend(list);
            start..words.len()
        };
        *places = Places {
            token_ids: put(&self.token_ids),
            positions: put(&self.positions),
            q_indptr: put(&self.q_indptr),
            kv_lens: put(&self.kv_lens),
            out_slots: put(&self.out_slots),
            logit_rows: put(&self.logit_rows),
            carried_rows: put(carried_rows),
            state_read: put(&self.state_read),
            state_write: put(&self.state_write),
            state_snapshots: put(&self.state_snapshots),
            sampling_rows: put(bytemuck::cast_slice(&self.sampling.rows)),
            page_table: put(&page_table),
            token_counts: put(bytemuck::cast_slice(&self.sampling.token_counts)),
            logit_bias: put(bytemuck::cast_slice(&self.sampling.logit_bias)),
        };
    }
}

fn to_u32(index: usize) -> u32 {
    u32::try_from(index).expect("positions and rows of a step fit 32 bits")
}
