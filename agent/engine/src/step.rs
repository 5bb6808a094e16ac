//! A step: what the device computes at once, as plain data. [`StepBuilder`] makes a [`StepPlan`] for those who carry it
//! out and the [`Step`] by which its mode settles it. Requests stay in their queues meanwhile.
//!
//! Prefill chunks and decode steps differ only in the number of positions. A row with drafts draws at each of its
//! positions (`speculate`).

mod builder;
pub(crate) mod carried;
mod drafts;
mod lists;
mod sampling;

use crate::command::RequestId;
use crate::grammar::Masks;
use crate::request::TokenLogprob;
use pd_compute::NO_TOKEN;
use std::ops::Range;
use std::time::Duration;

pub(crate) use builder::{Padding, StepBuilder};
pub(crate) use carried::StepId;
pub(crate) use drafts::{ChainStepBuilder, DraftState, DraftStepBuilder};

/// A scheduled step.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) id: StepId,
    pub(crate) rows: Vec<StepRow>,
}

/// What a step computes of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepRow {
    pub(crate) id: RequestId,
    pub(crate) positions: Range<usize>,
    /// How many of the positions yield a prompt logprob.
    pub(crate) prompt_logprobs: usize,
    /// Whether the step reaches the request's last token, so that it draws the next one.
    pub(crate) draws: bool,
    /// The tokens that are computed behind the last known one, which may be wrong.
    pub(crate) drafts: Vec<u32>,
    /// Tokens whose log probabilities each of its outputs reports.
    pub(crate) asked: usize,
}

/// Everything that is needed to carry out a step.
#[derive(Debug, Default)]
pub(crate) struct StepPlan {
    pub(crate) shape: StepShape,
    /// The inputs, as they are uploaded; `places` says which list lies where.
    pub(crate) words: Vec<u32>,
    pub(crate) places: Places,
    /// What rows may draw whose `SamplingRow::mask` says so; all that is not known when the step is scheduled.
    pub(crate) masks: Masks,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepShape {
    pub(crate) num_tokens: usize,
    pub(crate) num_seqs: usize,
    pub(crate) num_logit_rows: usize,
    /// Of the logit rows, the first ones, whose outputs are read back; the others are padding.
    pub(crate) num_outputs: usize,
    pub(crate) page_table_stride: usize,
    /// Largest number of likeliest tokens that a row asks for.
    pub(crate) top_n_max: usize,
    /// Largest number of tokens whose log probabilities a row asks for.
    pub(crate) asked_max: usize,
    /// Some tokens are those that the step before this one draws.
    pub(crate) carries: bool,
    /// Padded to one of few shapes, to be replayed as a graph.
    pub(crate) is_padded: bool,
    /// The model has recurrent state.
    pub(crate) has_states: bool,
    /// The model has a window space.
    pub(crate) has_window: bool,
    pub(crate) drafting: Drafting,
}

/// What a step does with a model's draft layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Drafting {
    /// Nothing.
    #[default]
    Off,
    /// Its entry of each row, behind what the model computes. What becomes of the outputs' rows stays on the device for
    /// the drafts after them, and is read back if `reads_states`.
    Entries { reads_states: bool },
    /// It draws the first draft of each request from what stayed there; no row is computed.
    First,
    /// It computes the last draft of each request, and draws the next.
    Next,
}

/// The place of each list in a plan's words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// `[num_tokens]`.
    pub(crate) token_ids: Range<usize>,
    /// `[num_tokens]`.
    pub(crate) positions: Range<usize>,
    /// `[num_seqs + 1]`.
    pub(crate) q_indptr: Range<usize>,
    /// `[num_seqs]`.
    pub(crate) kv_lens: Range<usize>,
    /// `[num_tokens]`.
    pub(crate) out_slots: Range<usize>,
    /// `[num_logit_rows]`.
    pub(crate) logit_rows: Range<usize>,
    /// `[num_tokens]`: the output of the step before that is the token, or `NO_ROW`. Empty unless the step carries.
    pub(crate) carried_rows: Range<usize>,
    /// `[num_seqs]`: the slot with the sequence's recurrent state before the step, or `NO_SLOT` for zeros. This list
    /// and the next two are empty unless the model has such state.
    pub(crate) state_read: Range<usize>,
    /// `[num_seqs]`: the slot for the state after the step, or `NO_SLOT` for padding.
    pub(crate) state_write: Range<usize>,
    /// `[num_tokens]`: the slot that keeps the state after this row, too, or `NO_SLOT`.
    pub(crate) state_snapshots: Range<usize>,
    /// `[num_logit_rows]` of `SamplingRow`.
    pub(crate) sampling_rows: Range<usize>,
    /// `[num_seqs][page_table_stride]`.
    pub(crate) page_table: Range<usize>,
    /// As `out_slots` and `page_table`, of the window space; both are empty unless the model has one.
    pub(crate) window_out_slots: Range<usize>,
    pub(crate) window_page_table: Range<usize>,
    pub(crate) token_counts: Range<usize>,
    pub(crate) logit_bias: Range<usize>,
    /// `[num_logit_rows][asked_max]`.
    pub(crate) asked_tokens: Range<usize>,
    /// `[num_tokens]`: the token after each, or `NO_TOKEN` where the step draws it. This list and the next are of
    /// [`Drafting::Entries`].
    pub(crate) next_tokens: Range<usize>,
    /// `[num_tokens]`: the output of this step that is the token after, or `NO_ROW`.
    pub(crate) next_rows: Range<usize>,
    /// `[num_logit_rows]`: the rows that drafts follow, of the last step's outputs or of the draft before.
    pub(crate) draft_rows: Range<usize>,
    /// States that were computed elsewhere, one after another, to lie behind those of outputs.
    pub(crate) draft_states: Range<usize>,
}

/// What a step drew, one entry per output.
#[derive(Debug, Default)]
pub(crate) struct StepOutput {
    pub(crate) tokens: Vec<u32>,
    pub(crate) logprobs: Vec<f32>,
    pub(crate) top_n_max: usize,
    /// `[outputs][top_n_max]`.
    pub(crate) top_tokens: Vec<u32>,
    /// `[outputs][top_n_max]`.
    pub(crate) top_logprobs: Vec<f32>,
    pub(crate) asked_max: usize,
    /// `[outputs][asked_max]`.
    pub(crate) asked_logprobs: Vec<f32>,
    /// The device replayed the step as a graph.
    pub(crate) is_graph: bool,
    /// `[outputs]` rows of bytes, if they are read back: what the draft layer made of each.
    pub(crate) draft_states: Vec<u8>,
    /// Keys and values that were written at the end of their dtype's range since the step before.
    pub(crate) kv_saturations: u64,
}

/// A step that has ended.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) rows: Vec<(StepRow, RowOutput)>,
    /// How long the device took.
    pub(crate) duration: Duration,
}

/// The result of a step for a row.
#[derive(Debug, Default)]
pub(crate) struct RowOutput {
    /// Of the prompt tokens after the computed ones, if requested.
    pub(crate) prompt_logprobs: Vec<TokenLogprob>,
    pub(crate) sampled: Sampled,
    /// What the draft layer made of the row that drew, if it was read back.
    pub(crate) draft_state: Vec<u8>,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) enum Sampled {
    /// The prompt has more chunks to come.
    #[default]
    NotYet,
    /// One, and one more for each draft that is accepted.
    Tokens(Vec<TokenLogprob>),
    /// No logit is finite behind these tokens: the model or its weights are broken for this input.
    NotFinite(Vec<TokenLogprob>),
}

// === impl StepPlan ===

#[cfg(test)]
impl StepPlan {
    /// For devices that draw without logits.
    pub(crate) fn without_masks(&self) -> Self {
        Self {
            shape: self.shape,
            words: self.words.clone(),
            places: self.places.clone(),
            masks: Masks::default(),
        }
    }
}

// === impl StepRow ===

impl StepRow {
    /// Outputs that are drawn, rather than given.
    fn draws_len(&self) -> usize {
        usize::from(self.draws) + self.drafts.len()
    }

    /// Whether the row computes what follows known tokens, and no prompt.
    pub(crate) fn is_decode(&self) -> bool {
        self.draws && self.positions.len() == 1 + self.drafts.len()
    }

    /// Positions before this one are computed with the right tokens, if the row got `drawn` tokens.
    pub(crate) fn computed_to(&self, drawn: usize) -> usize {
        if self.drafts.is_empty() {
            self.positions.end
        } else {
            self.positions.start + drawn
        }
    }

    /// Of what was drawn at each place, the tokens before which all drafts were right.
    fn accept(&self, drawn: Vec<Option<TokenLogprob>>) -> Sampled {
        if drawn.is_empty() {
            return Sampled::NotYet;
        }
        let mut tokens = Vec::with_capacity(drawn.len());
        for (place, drawn) in drawn.into_iter().enumerate() {
            let Some(token) = drawn else {
                return Sampled::NotFinite(tokens);
            };
            let is_draft = self.drafts.get(place) == Some(&token.token);
            tokens.push(token);
            if !is_draft {
                break;
            }
        }
        Sampled::Tokens(tokens)
    }
}

// === impl Sampled ===

impl Sampled {
    pub(crate) fn tokens(&self) -> &[TokenLogprob] {
        match self {
            Self::NotYet => &[],
            Self::Tokens(tokens) | Self::NotFinite(tokens) => tokens,
        }
    }

    pub(crate) fn is_finite(&self) -> bool {
        match self {
            Self::NotYet | Self::Tokens(_) => true,
            Self::NotFinite(_) => false,
        }
    }
}

// === impl StepOutput ===

impl StepOutput {
    /// Deals the outputs out to the step's rows: prompt logprobs first, then what the row draws.
    pub(crate) fn settle(&self, step: Step, duration: Duration) -> Settled {
        let mut first = 0;
        let mut settle = |row: StepRow| {
            let given = first..first + row.prompt_logprobs;
            let drawn = given.end..given.end + row.draws_len();
            first = drawn.end;
            let output = RowOutput {
                draft_state: self.draft_state(drawn.clone()),
                prompt_logprobs: given
                    .filter_map(|output| self.output(output, row.asked))
                    .collect(),
                sampled: row.accept(drawn.map(|output| self.output(output, row.asked)).collect()),
            };
            (row, output)
        };
        Settled {
            rows: step.rows.into_iter().map(&mut settle).collect(),
            duration,
        }
    }

    /// Of the first of these outputs; empty if states were not read back.
    fn draft_state(&self, outputs: Range<usize>) -> Vec<u8> {
        let len = self.draft_states.len() / self.tokens.len().max(1);
        let of_first = outputs.start * len..(outputs.start + 1).min(outputs.end) * len;
        self.draft_states[of_first].to_vec()
    }

    /// With the log probabilities of the first `asked` columns. `None`: no logit of the row is finite.
    fn output(&self, row: usize, asked: usize) -> Option<TokenLogprob> {
        let token = self.tokens[row];
        if token == NO_TOKEN {
            return None;
        }
        let tops = row * self.top_n_max..(row + 1) * self.top_n_max;
        let tokens = self.top_tokens[tops.clone()].iter().copied();
        let top = tokens
            .zip(self.top_logprobs[tops].iter().copied())
            .take_while(|&(token, _)| token != NO_TOKEN)
            .collect();
        let asked_begin = row * self.asked_max;
        Some(TokenLogprob {
            token,
            logprob: Some(self.logprobs[row]),
            top,
            asked: self.asked_logprobs[asked_begin..asked_begin + asked].to_vec(),
        })
    }
}
