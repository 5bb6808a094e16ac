//! A step's inputs and outputs on the device. All inputs are uploaded in one copy.

use crate::model::StepLimits;
use crate::sample::params::{TOKEN_IDS_LOGPROB_MAX, TOP_LOGPROBS_MAX};
use crate::step::{StepPlan, StepShape};
use pd_compute::{Backend, BatchView, ComputeError, DType, DeviceBuffer, SampleOut};
use pd_compute::{SamplingRow, SamplingView, StateRows, mask_words};
use std::ops::Range;

#[derive(Debug)]
pub(super) struct StepBuffers<B: Backend> {
    /// Every input but masks; grows with the requests' needs.
    words: B::Buffer,
    /// Those of a step; grows with the rows that have one.
    masks: B::Buffer,
    tokens: B::Buffer,
    logprobs: B::Buffer,
    top_tokens: B::Buffer,
    top_logprobs: B::Buffer,
    asked_logprobs: B::Buffer,
}

/// A plan's lists on the device.
#[derive(Debug)]
pub(super) struct StepInputs<B: Backend> {
    pub(super) batch: BatchView<B>,
    /// The same with pages of the window space, if the model has one.
    pub(super) window_batch: Option<BatchView<B>>,
    /// `U32 [num_logit_rows]`.
    pub(super) logit_rows: B::Buffer,
    pub(super) num_logit_rows: usize,
    /// `U32 [num_tokens]`, if the step carries tokens.
    pub(super) carried_rows: Option<B::Buffer>,
    pub(super) sampling: SamplingView<B>,
    /// Of a model with recurrent state.
    pub(super) states: Option<StateRows<B>>,
    /// `U32 [num_tokens]`, and the outputs that are some of them.
    pub(super) next_tokens: B::Buffer,
    pub(super) next_rows: B::Buffer,
    /// `U32 [num_logit_rows]`.
    pub(super) draft_rows: B::Buffer,
}

// === impl StepBuffers ===

impl<B: Backend> StepBuffers<B> {
    pub(super) fn alloc(
        backend: &B,
        limits: StepLimits,
        max_seqs: usize,
        vocab: usize,
    ) -> Result<Self, ComputeError> {
        let StepLimits {
            max_tokens,
            max_logit_rows,
        } = limits;
        let u32s = |name: &str, len: usize| backend.alloc(name, DType::U32, len);
        let f32s = |name: &str, len: usize| backend.alloc(name, DType::F32, len);
        let top_len = max_logit_rows * TOP_LOGPROBS_MAX as usize;
        let asked_len = max_logit_rows * TOKEN_IDS_LOGPROB_MAX;
        let words = 4 * max_tokens + 6 * max_seqs + max_logit_rows * (SamplingRow::WORDS + 1);
        Ok(Self {
            words: u32s(INPUTS, words.next_power_of_two())?,
            masks: u32s(MASKS, max_seqs * mask_words(vocab))?,
            tokens: u32s("sampled tokens", max_logit_rows)?,
            logprobs: f32s("logprobs", max_logit_rows)?,
            top_tokens: u32s("top tokens", top_len)?,
            top_logprobs: f32s("top logprobs", top_len)?,
            asked_logprobs: f32s("logprobs of asked tokens", asked_len)?,
        })
    }

    /// The tokens that the last step drew, by output.
    pub(super) fn tokens(&self) -> &B::Buffer {
        &self.tokens
    }

    /// Where masks lie, one after another.
    pub(super) fn masks(&self) -> &B::Buffer {
        &self.masks
    }

    pub(super) fn outputs(&self, shape: &StepShape) -> SampleOut<B> {
        let StepShape {
            num_logit_rows: rows,
            top_n_max,
            asked_max,
            ..
        } = *shape;
        SampleOut {
            tokens: self.tokens.slice(0..rows),
            logprobs: self.logprobs.slice(0..rows),
            top_n_max,
            top_tokens: self.top_tokens.slice(0..rows * top_n_max),
            top_logprobs: self.top_logprobs.slice(0..rows * top_n_max),
            asked_max,
            asked_logprobs: self.asked_logprobs.slice(0..rows * asked_max),
        }
    }

    /// # Errors
    /// If allocating longer lists fails.
    pub(super) fn upload(
        &mut self,
        backend: &B,
        plan: &StepPlan,
    ) -> Result<StepInputs<B>, ComputeError> {
        let StepPlan {
            shape,
            words,
            places,
            masks,
        } = plan;
        if self.words.len() < words.len() {
            // Doubled, so that growing contexts cause few allocations.
            self.words = backend.alloc(INPUTS, DType::U32, words.len().next_power_of_two())?;
        }
        if self.masks.len() < masks.words_len() {
            let len = masks.words_len().next_power_of_two();
            self.masks = backend.alloc(MASKS, DType::U32, len)?;
        }
        backend.upload(&self.words, words);
        let at = |place: &Range<usize>| self.words.slice(place.clone());
        let batch = |page_table, out_slots| BatchView {
            num_tokens: shape.num_tokens,
            num_seqs: shape.num_seqs,
            token_ids: at(&places.token_ids),
            positions: at(&places.positions),
            q_indptr: at(&places.q_indptr),
            kv_lens: at(&places.kv_lens),
            page_table: at(page_table),
            page_table_stride: shape.page_table_stride,
            out_slots: at(out_slots),
        };
        Ok(StepInputs {
            batch: batch(&places.page_table, &places.out_slots),
            window_batch: shape
                .has_window
                .then(|| batch(&places.window_page_table, &places.window_out_slots)),
            logit_rows: at(&places.logit_rows),
            num_logit_rows: shape.num_logit_rows,
            carried_rows: shape.carries.then(|| at(&places.carried_rows)),
            sampling: SamplingView {
                rows: at(&places.sampling_rows),
                token_counts: at(&places.token_counts),
                logit_bias: at(&places.logit_bias),
                masks: self.masks.clone(),
                asked_tokens: at(&places.asked_tokens),
            },
            states: shape.has_states.then(|| StateRows {
                read: at(&places.state_read),
                write: at(&places.state_write),
                snapshot: at(&places.state_snapshots),
            }),
            next_tokens: at(&places.next_tokens),
            next_rows: at(&places.next_rows),
            draft_rows: at(&places.draft_rows),
        })
    }
}

const INPUTS: &str = "a step's inputs";
const MASKS: &str = "a step's masks";
