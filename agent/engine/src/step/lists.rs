//! `Lists`: what the rows of a step consist of, list by list, until they are packed into a plan.

use super::sampling::SamplingRows;
use super::{Places, StepPlan, StepShape};
use crate::kvcache::ReqPoolIdx;
use crate::kvcache::pool::ReqKv;
use crate::kvcache::pool::state::Snapshot;
use crate::kvcache::req_to_token::ReqToTokenPool;
use crate::req::Req;
use pd_compute::kv::NO_SLOT;
use pd_compute::{NO_ROW, NO_TOKEN};
use std::ops::Range;

/// In the place of pages that were given back; no op reads what a window has left behind.
const NOT_READ: u32 = 0;
/// Lists begin at multiples of this many words, as kernels load them.
const ALIGNMENT_WORDS: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Lists {
    pub(super) token_ids: Vec<u32>,
    pub(super) positions: Vec<u32>,
    pub(super) q_indptr: Vec<u32>,
    pub(super) kv_lens: Vec<u32>,
    pub(super) out_slots: Vec<u32>,
    pub(super) logit_rows: Vec<u32>,
    pub(super) carried_rows: Vec<u32>,
    pub(super) state_read: Vec<u32>,
    pub(super) state_write: Vec<u32>,
    pub(super) state_snapshots: Vec<u32>,
    /// Of all requests, one after another; the ends are in `page_ends`.
    pub(super) pages: Vec<u32>,
    pub(super) page_ends: Vec<usize>,
    /// As `out_slots` and `pages`, in the window space; empty without one.
    pub(super) window_out_slots: Vec<u32>,
    pub(super) window_pages: Vec<u32>,
    pub(super) sampling: SamplingRows,
    pub(super) next_tokens: Vec<u32>,
    pub(super) next_rows: Vec<u32>,
    pub(super) draft_rows: Vec<u32>,
    /// Words of states, one after another.
    pub(super) draft_states: Vec<u32>,
}

// === impl Lists ===

impl Lists {
    pub(super) fn clear(&mut self) {
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
            window_out_slots,
            window_pages,
            sampling,
            next_tokens,
            next_rows,
            draft_rows,
            draft_states,
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
            window_out_slots,
            window_pages,
            next_tokens,
            next_rows,
            draft_rows,
            draft_states,
        ] {
            list.clear();
        }
        page_ends.clear();
        sampling.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.logit_rows.is_empty() && self.token_ids.is_empty()
    }

    /// The last token so far, which is behind `drafts`, draws the draft after them.
    pub(super) fn draw_draft(&mut self, req: &Req, drafts: &[u32]) {
        self.logit_rows.push(to_u32(self.token_ids.len() - 1));
        self.sampling.push_draft(req, drafts);
    }

    /// The tokens after those at `positions`; from the first that is not known they are outputs, one after another, from
    /// `output` on.
    pub(super) fn push_next(&mut self, req: &Req, positions: &Range<usize>, output: usize) {
        let mut outputs = output..;
        for position in positions.clone() {
            let known = req.tokens.get(position + 1).copied();
            let drawn = || outputs.next().map_or(NO_ROW, to_u32);
            self.next_rows.push(known.map_or_else(drawn, |_| NO_ROW));
            self.next_tokens.push(known.unwrap_or(NO_TOKEN));
        }
    }

    /// Where the last tokens lie, of the request in row `idx`, at `positions`. Of positions that are not `written`
    /// the keys and values are there.
    pub(super) fn push_places(
        &mut self,
        positions: &Range<usize>,
        req_to_token: &ReqToTokenPool,
        idx: ReqPoolIdx,
        written: impl Fn(usize) -> bool,
    ) {
        if self.q_indptr.is_empty() {
            self.q_indptr.push(0);
        }
        self.q_indptr.push(to_u32(self.token_ids.len()));
        self.kv_lens.push(to_u32(positions.end));
        for position in positions.clone() {
            self.positions.push(to_u32(position));
            self.out_slots.push(if written(position) {
                req_to_token.slot(idx, position)
            } else {
                NO_SLOT
            });
        }
        let used = positions.end.div_ceil(req_to_token.page_size());
        let pages = &req_to_token.pages(idx)[..used];
        self.pages.extend(pages.iter().map(|page| page.0));
        self.page_ends.push(self.pages.len());
    }

    /// Where they lie in the window space, if there is one, of the request whose places were pushed last.
    pub(super) fn push_window_places(
        &mut self,
        positions: &Range<usize>,
        req_to_token: &ReqToTokenPool,
        idx: ReqPoolIdx,
    ) {
        let Some(row) = req_to_token.window(idx) else {
            return;
        };
        let page_size = req_to_token.page_size();
        let slots = positions.clone().map(|position| {
            let page = row.page(position / page_size);
            req_to_token.slot_in(page, position)
        });
        self.window_out_slots.extend(slots);
        let used = positions.end.div_ceil(page_size);
        let pages = (0..used).map(|place| row.live_page(place).map_or(NOT_READ, |page| page.0));
        self.window_pages.extend(pages);
    }

    /// Where the request's recurrent state is read and written, if it has one.
    pub(super) fn push_state(
        &mut self,
        positions: &Range<usize>,
        kv: &mut ReqKv,
        snapshots: &[Snapshot],
    ) {
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

    /// Of the pages of each request, which are in one list, a row of `stride`.
    fn page_table(&self, pages: &[u32], stride: usize) -> Vec<u32> {
        let mut table = Vec::with_capacity(self.page_ends.len() * stride);
        let mut start = 0;
        for (row, &end) in (1..).zip(&self.page_ends) {
            table.extend(&pages[start..end]);
            table.resize(row * stride, 0);
            start = end;
        }
        table
    }

    /// Pads to `num_seqs` with rows of one token each whose results are discarded, and rounds up
    /// lengths that vary with requests, so that steps have few shapes.
    fn pad(&mut self, num_seqs: usize) {
        let has_states = !self.state_read.is_empty();
        let makes_entries = !self.next_rows.is_empty();
        let has_window = !self.window_out_slots.is_empty();
        for row in self.kv_lens.len()..num_seqs {
            if has_states {
                self.state_read.push(NO_SLOT);
                self.state_write.push(NO_SLOT);
                self.state_snapshots.push(NO_SLOT);
            }
            self.token_ids.push(0);
            self.positions.push(0);
            self.out_slots.push(NO_SLOT);
            if has_window {
                self.window_out_slots.push(NO_SLOT);
            }
            self.q_indptr.push(to_u32(row + 1));
            self.kv_lens.push(1);
            self.logit_rows.push(to_u32(row));
            self.carried_rows.push(NO_ROW);
            if makes_entries {
                self.next_tokens.push(NO_TOKEN);
                self.next_rows.push(NO_ROW);
            }
            self.sampling.push_padding();
        }
        self.sampling.pad_lists();
    }

    /// Pages of the longest request.
    pub(super) fn longest_pages(&self) -> usize {
        let starts = [0].into_iter().chain(self.page_ends.iter().copied());
        let lens = starts.zip(&self.page_ends).map(|(start, end)| end - start);
        lens.max().unwrap_or(0)
    }

    /// The plan of a step with page tables of `stride`, padded to `padded` requests if that is said. The lists are
    /// empty after it.
    pub(super) fn take_plan(&mut self, stride: usize, padded: Option<usize>) -> StepPlan {
        let mut plan = StepPlan {
            shape: StepShape {
                num_outputs: self.logit_rows.len(),
                page_table_stride: stride,
                carries: self.carried_rows.iter().any(|&row| row != NO_ROW),
                is_padded: padded.is_some(),
                has_states: !self.state_read.is_empty(),
                has_window: !self.window_out_slots.is_empty(),
                ..StepShape::default()
            },
            ..StepPlan::default()
        };
        let page_table = self.page_table(&self.pages, stride);
        let window_table = if plan.shape.has_window {
            self.page_table(&self.window_pages, stride)
        } else {
            Vec::new()
        };
        if let Some(padded) = padded {
            self.pad(padded);
        }
        self.pack(page_table, window_table, &mut plan);
        self.clear();
        plan
    }

    /// Concatenates the lists into the plan's words.
    fn pack(&self, mut page_table: Vec<u32>, mut window_table: Vec<u32>, plan: &mut StepPlan) {
        let StepPlan {
            shape,
            words,
            places,
            masks: _,
        } = plan;
        shape.num_tokens = self.token_ids.len();
        shape.num_seqs = self.kv_lens.len();
        shape.num_logit_rows = self.logit_rows.len();
        shape.top_n_max = self.sampling.top_n_max;
        let (asked_max, asked_tokens) = self.sampling.asked_table();
        shape.asked_max = asked_max;
        page_table.resize(shape.num_seqs * shape.page_table_stride, 0);
        if shape.has_window {
            window_table.resize(page_table.len(), 0);
        }
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
            window_out_slots: put(&self.window_out_slots),
            window_page_table: put(&window_table),
            token_counts: put(bytemuck::cast_slice(&self.sampling.token_counts)),
            logit_bias: put(bytemuck::cast_slice(&self.sampling.logit_bias)),
            asked_tokens: put(&asked_tokens),
            next_tokens: put(&self.next_tokens),
            next_rows: put(&self.next_rows),
            draft_rows: put(&self.draft_rows),
            draft_states: put(&self.draft_states),
        };
    }
}

pub(super) fn to_u32(index: usize) -> u32 {
    u32::try_from(index).expect("positions and rows of a step fit 32 bits")
}
