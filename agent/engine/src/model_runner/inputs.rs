//! A step's inputs: gathered on the host, then uploaded in one copy to a buffer that holds them
//! all.

use crate::batch::BatchRow;
use crate::kvcache::req_to_token::ReqToTokenPool;
use crate::sample::params::TOP_LOGPROBS_MAX;
use crate::sample::rows::SamplingRows;
use pd_compute::kv::NO_SLOT;
use pd_compute::{
    Backend, BatchView, ComputeError, DType, DeviceBuffer, NO_ROW, SampleOut, SamplingRow,
    SamplingView,
};
use std::ops::Range;

/// Lists begin at multiples of this many words, as kernels load them.
const ALIGNMENT_WORDS: usize = 4;

/// Inputs and outputs of a step on the device.
#[derive(Debug)]
pub(super) struct DeviceInputs<B: Backend> {
    /// Every input; grows with the requests' needs.
    words: B::Buffer,
    pub(super) out_tokens: B::Buffer,
    out_logprobs: B::Buffer,
    top_tokens: B::Buffer,
    top_logprobs: B::Buffer,
}

/// Inputs of a step on the host; kept to reuse their memory.
#[derive(Debug, Default)]
pub(super) struct HostInputs {
    token_ids: Vec<u32>,
    positions: Vec<u32>,
    q_indptr: Vec<u32>,
    kv_lens: Vec<u32>,
    out_slots: Vec<u32>,
    logit_rows: Vec<u32>,
    page_table: Vec<u32>,
    page_table_stride: usize,
    /// For a step launched early: rows of the previous step that sample this step's tokens.
    sampled_rows: Vec<u32>,
    sampling: SamplingRows,
    /// All of the above, as they are uploaded.
    words: Vec<u32>,
}

/// A step's inputs on the device.
#[derive(Debug)]
pub(super) struct StepInputs<B: Backend> {
    pub(super) batch: BatchView<B>,
    /// `U32 [num_logit_rows]`.
    pub(super) logit_rows: B::Buffer,
    pub(super) num_logit_rows: usize,
    /// `U32 [num_tokens]`, if the step is launched early.
    pub(super) sampled_rows: Option<B::Buffer>,
    pub(super) sampling: SamplingView<B>,
    pub(super) top_n_max: usize,
}

/// The position of each list in the words.
#[derive(Debug)]
struct Places {
    token_ids: Range<usize>,
    positions: Range<usize>,
    q_indptr: Range<usize>,
    kv_lens: Range<usize>,
    out_slots: Range<usize>,
    logit_rows: Range<usize>,
    sampled_rows: Range<usize>,
    sampling_rows: Range<usize>,
    page_table: Range<usize>,
    token_counts: Range<usize>,
    logit_bias: Range<usize>,
}

// === impl HostInputs ===

impl HostInputs {
    pub(super) fn clear(&mut self) {
        let Self {
            token_ids,
            positions,
            q_indptr,
            kv_lens,
            out_slots,
            logit_rows,
            page_table,
            page_table_stride: _,
            sampled_rows,
            sampling,
            words: _,
        } = self;
        for list in [
            token_ids,
            positions,
            q_indptr,
            kv_lens,
            out_slots,
            logit_rows,
            page_table,
            sampled_rows,
        ] {
            list.clear();
        }
        sampling.clear();
        self.q_indptr.push(0);
    }

    pub(super) fn push(&mut self, row: &BatchRow, req_to_token: &ReqToTokenPool) {
        let first_row = self.token_ids.len();
        let positions = row.positions();
        self.token_ids.extend(&row.req.tokens[positions.clone()]);
        self.push_positions(row, positions.clone(), req_to_token);
        for position in row.prompt_logprob_positions() {
            let row_of = first_row + position - positions.start;
            self.logit_rows.push(to_u32(row_of));
            let given = row.req.tokens[position + 1];
            self.sampling.push_given(given, row.req.top_logprobs_num());
        }
        if row.samples() {
            self.logit_rows.push(to_u32(self.token_ids.len() - 1));
            self.sampling.push_sample(&row.req, 0);
        }
    }

    /// A row that continues with the token that the previous step samples in its row `sampled_row`.
    pub(super) fn push_ahead(
        &mut self,
        row: &BatchRow,
        sampled_row: usize,
        req_to_token: &ReqToTokenPool,
    ) {
        let position = row.positions().end;
        self.token_ids.push(0);
        self.sampled_rows.push(to_u32(sampled_row));
        self.push_positions(row, position..position + 1, req_to_token);
        self.logit_rows.push(to_u32(self.token_ids.len() - 1));
        self.sampling.push_sample(&row.req, 1);
    }

    fn push_positions(
        &mut self,
        row: &BatchRow,
        positions: Range<usize>,
        req_to_token: &ReqToTokenPool,
    ) {
        let kv = row.req.kv.as_ref();
        let kv = kv.expect("a request in a batch holds pages");
        self.q_indptr.push(to_u32(self.token_ids.len()));
        self.kv_lens.push(to_u32(positions.end));
        for position in positions {
            self.positions.push(to_u32(position));
            self.out_slots.push(req_to_token.slot(kv.idx, position));
        }
    }

    /// The pages of the pushed rows, `stride` for each.
    pub(super) fn set_pages<'a>(
        &mut self,
        rows: impl Iterator<Item = &'a BatchRow>,
        req_to_token: &ReqToTokenPool,
        stride: usize,
    ) {
        self.page_table_stride = stride;
        for row in rows {
            let kv = row.req.kv.as_ref();
            let pages = req_to_token.pages(kv.expect("a request in a batch holds pages").idx);
            let pages = pages.iter().map(|page| page.0);
            self.page_table
                .extend(pages.chain(std::iter::repeat(0)).take(stride));
        }
    }

    pub(super) fn num_seqs(&self) -> usize {
        self.kv_lens.len()
    }

    pub(super) fn longest(&self) -> usize {
        self.kv_lens.iter().max().map_or(0, |len| *len as usize)
    }

    /// Pads to `num_seqs` with rows of one token each whose results are discarded, and rounds up
    /// lengths that vary with requests, so that steps have few shapes.
    pub(super) fn pad(&mut self, num_seqs: usize) {
        let is_ahead = !self.sampled_rows.is_empty();
        for row in self.kv_lens.len()..num_seqs {
            self.token_ids.push(0);
            self.positions.push(0);
            self.out_slots.push(NO_SLOT);
            self.q_indptr.push(to_u32(row + 1));
            self.kv_lens.push(1);
            self.logit_rows.push(to_u32(row));
            self.sampling.push_padding();
            if is_ahead {
                self.sampled_rows.push(NO_ROW);
            }
        }
        self.page_table.resize(num_seqs * self.page_table_stride, 0);
        self.sampling.pad_lists();
    }

    /// Concatenates the lists into `words`.
    fn pack(&mut self) -> Places {
        let words = &mut self.words;
        words.clear();
        let mut put = |list: &[u32]| {
            words.resize(words.len().next_multiple_of(ALIGNMENT_WORDS), 0);
            let start = words.len();
            words.extend(list);
            start..words.len()
        };
        Places {
            token_ids: put(&self.token_ids),
            positions: put(&self.positions),
            q_indptr: put(&self.q_indptr),
            kv_lens: put(&self.kv_lens),
            out_slots: put(&self.out_slots),
            logit_rows: put(&self.logit_rows),
            sampled_rows: put(&self.sampled_rows),
            sampling_rows: put(bytemuck::cast_slice(&self.sampling.rows)),
            page_table: put(&self.page_table),
            token_counts: put(bytemuck::cast_slice(&self.sampling.token_counts)),
            logit_bias: put(bytemuck::cast_slice(&self.sampling.logit_bias)),
        }
    }
}

// === impl DeviceInputs ===

impl<B: Backend> DeviceInputs<B> {
    pub(super) fn alloc(
        backend: &B,
        max_tokens: usize,
        max_seqs: usize,
        max_logit_rows: usize,
    ) -> Result<Self, ComputeError> {
        let u32s = |name: &str, len: usize| backend.alloc(name, DType::U32, len);
        let f32s = |name: &str, len: usize| backend.alloc(name, DType::F32, len);
        let top_len = max_logit_rows * TOP_LOGPROBS_MAX as usize;
        let words = 3 * max_tokens + 4 * max_seqs + max_logit_rows * (SamplingRow::WORDS + 1);
        Ok(Self {
            words: u32s(INPUTS, words.next_power_of_two())?,
            out_tokens: u32s("sampled tokens", max_logit_rows)?,
            out_logprobs: f32s("logprobs", max_logit_rows)?,
            top_tokens: u32s("top tokens", top_len)?,
            top_logprobs: f32s("top logprobs", top_len)?,
        })
    }

    pub(super) fn outputs(&self, rows: usize, top_n_max: usize) -> SampleOut<B> {
        SampleOut {
            tokens: self.out_tokens.slice(0..rows),
            logprobs: self.out_logprobs.slice(0..rows),
            top_n_max,
            top_tokens: self.top_tokens.slice(0..rows * top_n_max),
            top_logprobs: self.top_logprobs.slice(0..rows * top_n_max),
        }
    }

    /// # Errors
    /// If allocating longer lists fails.
    pub(super) fn upload(
        &mut self,
        backend: &B,
        host: &mut HostInputs,
    ) -> Result<StepInputs<B>, ComputeError> {
        let places = host.pack();
        let len = host.words.len();
        if self.words.len() < len {
            // Doubled, so that growing contexts cause few allocations.
            self.words = backend.alloc(INPUTS, DType::U32, len.next_power_of_two())?;
        }
        backend.upload(&self.words, &host.words);
        let at = |place: &Range<usize>| self.words.slice(place.clone());
        Ok(StepInputs {
            batch: BatchView {
                num_tokens: host.token_ids.len(),
                num_seqs: host.kv_lens.len(),
                token_ids: at(&places.token_ids),
                positions: at(&places.positions),
                q_indptr: at(&places.q_indptr),
                kv_lens: at(&places.kv_lens),
                page_table: at(&places.page_table),
                page_table_stride: host.page_table_stride,
                out_slots: at(&places.out_slots),
            },
            logit_rows: at(&places.logit_rows),
            num_logit_rows: host.logit_rows.len(),
            sampled_rows: (!host.sampled_rows.is_empty()).then(|| at(&places.sampled_rows)),
            sampling: SamplingView {
                rows: at(&places.sampling_rows),
                token_counts: at(&places.token_counts),
                logit_bias: at(&places.logit_bias),
            },
            top_n_max: host.sampling.top_n_max,
        })
    }
}

const INPUTS: &str = "a step's inputs";

fn to_u32(index: usize) -> u32 {
    u32::try_from(index).expect("positions and rows of a step fit 32 bits")
}
