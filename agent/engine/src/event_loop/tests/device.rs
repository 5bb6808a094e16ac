//! A device whose "KV" of a slot is the token there with its position, and whose next token is a hash of all the tokens
//! before it, as it finds them by the page table. A stale slot, a wrong page or a token of another request is noticed.

mod entries;
mod windows;

use super::Sizes;
use super::asked::LOST;
use crate::kvcache::{KvPlaces, PageIdx, StateSlot, WindowPageIdx};
use crate::observe::PayloadHash;
use crate::ranks::{HostKv, PageSpan, Ranks};
use crate::step::{Drafting, StepOutput, StepPlan};
use entries::Entries;
use parking_lot::Mutex;
use pd_compute::kv::NO_SLOT;
use pd_compute::{ComputeError, NO_ROW, NO_TOKEN, SamplingRow, TokenCount};
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use windows::WindowSlots;

pub(super) const VOCAB: u32 = 40;

/// The token after `tokens`.
pub(super) fn next_token(tokens: &[u32]) -> u32 {
    let mut hasher = DefaultHasher::new();
    tokens.hash(&mut hasher);
    u32::try_from(hasher.finish() % u64::from(VOCAB)).unwrap()
}

/// The same, penalised by how often each token is in the answer.
pub(super) fn next_penalised(tokens: &[u32], counts: &[(u32, u32)]) -> u32 {
    let counts = counts.iter().flat_map(|&(token, count)| [token, count]);
    next_token(&counts.chain(tokens.iter().copied()).collect::<Vec<_>>())
}

/// The token for which some take `right`: three of four times itself.
pub(super) fn guess(right: u32) -> u32 {
    let is_right = !right.is_multiple_of(4);
    if is_right { right } else { mistake(right) }
}

pub(super) fn mistake(right: u32) -> u32 {
    (right + 1) % VOCAB
}

#[derive(Clone, Debug)]
pub(super) struct Device(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    page_size: usize,
    /// Token and position.
    slots: Vec<Option<(u32, u32)>>,
    /// The recurrent state after these tokens.
    states: HashMap<u32, Vec<u32>>,
    /// Of a model with a window space.
    windows: Option<WindowSlots>,
    is_late: bool,
    loses: bool,
    /// What it draws of the right token.
    draws: fn(u32) -> u32,
    in_flight: VecDeque<Pending>,
    /// What the last executed step drew.
    drawn: Vec<u32>,
    /// Of its draft layer.
    entries: Entries,
}

#[derive(Debug)]
enum Pending {
    Plan(StepPlan),
    Done(Vec<u32>, StepPlan),
}

impl Device {
    pub(super) fn new(sizes: &Sizes) -> Self {
        Self(Arc::new(Mutex::new(State {
            page_size: sizes.page_size,
            slots: vec![None; sizes.page_size * sizes.num_pages],
            states: HashMap::new(),
            windows: sizes.window.map(|window| WindowSlots::new(window, sizes)),
            is_late: sizes.is_late,
            loses: sizes.loses,
            draws: std::convert::identity,
            in_flight: VecDeque::new(),
            drawn: Vec::new(),
            entries: Entries::new(sizes.page_size * sizes.num_pages),
        })))
    }

    /// Draws another token than the right one.
    pub(super) fn make_mistaken(self, draws: fn(u32) -> u32) -> Self {
        self.0.lock().draws = draws;
        self
    }

    /// # Panics
    /// When a step in flight reads or writes a page or a state slot that is free.
    pub(super) fn assert_uses_none_of(
        &self,
        free: &HashSet<PageIdx>,
        free_window: &HashSet<WindowPageIdx>,
        free_slots: &HashSet<StateSlot>,
    ) {
        let state = self.0.lock();
        for pending in &state.in_flight {
            let (Pending::Plan(plan) | Pending::Done(_, plan)) = pending;
            let inputs = Inputs::of(plan);
            if let Some(windows) = &state.windows {
                windows.assert_uses_none_of(&inputs, free_window);
            }
            for seq in 0..plan.shape.num_seqs {
                let free_page = inputs
                    .pages(seq, state.page_size)
                    .iter()
                    .find(|&&page| free.contains(&PageIdx(page)));
                assert_eq!(free_page, None, "page given back while a step uses it");
            }
            for slot in inputs.used_slots() {
                assert!(
                    !free_slots.contains(&StateSlot(slot)),
                    "state slot {slot} given back while a step uses it"
                );
            }
        }
    }
}

impl State {
    fn execute(&mut self, plan: &StepPlan) -> Vec<u32> {
        match plan.shape.drafting {
            Drafting::Off => self.compute(plan).1,
            Drafting::Entries { .. } => {
                let (tokens, drawn) = self.compute(plan);
                self.extend(plan, &tokens, &drawn);
                drawn
            }
            Drafting::First => self.begin_chains(plan),
            Drafting::Next => self.continue_chains(plan),
        }
    }

    /// The tokens of a step of the model, and what it drew.
    fn compute(&mut self, plan: &StepPlan) -> (Vec<u32>, Vec<u32>) {
        let inputs = Inputs::of(plan);
        let mut tokens = inputs.token_ids.to_vec();
        for (token, &row) in tokens.iter_mut().zip(inputs.carried_rows) {
            if row != NO_ROW {
                *token = self.drawn[row as usize];
            }
        }
        for ((&slot, &token), &position) in
            inputs.out_slots.iter().zip(&tokens).zip(inputs.positions)
        {
            if slot != NO_SLOT {
                self.slots[slot as usize] = Some((token, position));
            }
        }
        assert_eq!(inputs.has_window, self.windows.is_some());
        if let Some(windows) = &mut self.windows {
            windows.write(&inputs, &tokens);
            windows.check(&inputs, &self.slots);
        }
        let states = self.advance_states(&inputs, &tokens);
        let rows = inputs.logit_rows.iter().zip(inputs.sampling);
        let drawn =
            rows.map(|(&row, sampling)| self.draw(&inputs, row as usize, sampling, &states));
        let drawn: Vec<u32> = drawn.collect();
        self.drawn.clone_from(&drawn);
        (tokens, drawn)
    }

    /// The state of each sequence from before the step to after it, with all its tokens.
    fn advance_states(&mut self, inputs: &Inputs<'_>, tokens: &[u32]) -> Vec<Vec<u32>> {
        let mut after = Vec::new();
        for (seq, (&read, &write)) in inputs.state_read.iter().zip(inputs.state_write).enumerate() {
            let rows = inputs.q_indptr[seq] as usize..inputs.q_indptr[seq + 1] as usize;
            let mut state = match read {
                NO_SLOT => Vec::new(),
                slot => self.states[&slot].clone(),
            };
            if write != NO_SLOT {
                let first = inputs.positions[rows.start] as usize;
                assert_eq!(
                    state.len(),
                    first,
                    "a state is of the positions before the step"
                );
            }
            for row in rows {
                state.push(tokens[row]);
                let kept = inputs.state_snapshots[row];
                if kept != NO_SLOT {
                    self.states.insert(kept, state.clone());
                }
            }
            if write != NO_SLOT {
                self.states.insert(write, state.clone());
            }
            after.push(state);
        }
        after
    }

    fn draw(
        &self,
        inputs: &Inputs<'_>,
        row: usize,
        sampling: &SamplingRow,
        states: &[Vec<u32>],
    ) -> u32 {
        if sampling.given != NO_TOKEN {
            return sampling.given;
        }
        let seq = inputs.seq_of(row);
        if inputs.is_padding(seq) {
            return 0;
        }
        let pages = inputs.pages(seq, self.page_size);
        let seen = |position: u32| {
            let page = pages[position as usize / self.page_size] as usize;
            let slot = page * self.page_size + position as usize % self.page_size;
            let (token, at) = self.slots[slot].expect("a visible slot was written");
            assert_eq!(at, position, "a slot holds the token of its position");
            token
        };
        let position = inputs.positions[row];
        assert_eq!(sampling.position, position + 1, "the token that is drawn");
        let is_carried = inputs
            .carried_rows
            .get(row)
            .is_some_and(|&row| row != NO_ROW);
        assert!(
            !is_carried || sampling.counts_begin == sampling.counts_end,
            "a penalised row knows all its tokens"
        );
        let tokens: Vec<u32> = (0..=position).map(seen).collect();
        if let Some(state) = states.get(seq) {
            assert!(
                state.starts_with(&tokens),
                "the state of another request or place"
            );
        }
        let next = match inputs.counts(sampling) {
            counts if counts.is_empty() => next_token(&tokens),
            counts => next_penalised(&tokens, &counts),
        };
        match next {
            LOST if self.loses => NO_TOKEN,
            token => (self.draws)(token),
        }
    }
}

impl Ranks for Device {
    fn launch(&mut self, plan: &StepPlan) -> Result<(), ComputeError> {
        let state = &mut *self.0.lock();
        let plan = plan.without_masks();
        let pending = if state.is_late {
            Pending::Plan(plan)
        } else {
            Pending::Done(state.execute(&plan), plan)
        };
        state.in_flight.push_back(pending);
        Ok(())
    }

    fn wait(&mut self) -> Result<StepOutput, ComputeError> {
        let state = &mut *self.0.lock();
        let (tokens, plan) = match state.in_flight.pop_front().expect("a step is in flight") {
            Pending::Plan(plan) => (state.execute(&plan), plan),
            Pending::Done(tokens, plan) => (tokens, plan),
        };
        let len = plan.shape.num_outputs;
        Ok(StepOutput {
            tokens: tokens[..len].to_vec(),
            logprobs: vec![0.0; len],
            ..StepOutput::default()
        })
    }

    fn offload(&mut self, _places: &KvPlaces) -> Result<HostKv, ComputeError> {
        unreachable!("a unified engine computes again what it lost")
    }

    fn reload(&mut self, _kv: HostKv, _places: &KvPlaces) -> Result<(), ComputeError> {
        unreachable!("a unified engine computes again what it lost")
    }

    fn hash_pages(&mut self, _spans: &[PageSpan]) -> Result<Vec<PayloadHash>, ComputeError> {
        unreachable!("these tests observe nothing")
    }

    fn hash_states(&mut self, _slot: StateSlot) -> Result<Vec<PayloadHash>, ComputeError> {
        unreachable!("these tests observe nothing")
    }

    fn forget(&mut self, _kv: HostKv) {}
}

/// A plan's lists.
struct Inputs<'a> {
    token_ids: &'a [u32],
    positions: &'a [u32],
    q_indptr: &'a [u32],
    kv_lens: &'a [u32],
    out_slots: &'a [u32],
    logit_rows: &'a [u32],
    carried_rows: &'a [u32],
    state_read: &'a [u32],
    state_write: &'a [u32],
    state_snapshots: &'a [u32],
    sampling: &'a [SamplingRow],
    token_counts: &'a [TokenCount],
    page_table: &'a [u32],
    window_out_slots: &'a [u32],
    window_page_table: &'a [u32],
    has_window: bool,
    stride: usize,
    /// Sequences that are not padding.
    num_real: usize,
}

impl<'a> Inputs<'a> {
    fn of(plan: &'a StepPlan) -> Self {
        let list = |place: &Range<usize>| &plan.words[place.clone()];
        let places = &plan.places;
        Self {
            token_ids: list(&places.token_ids),
            positions: list(&places.positions),
            q_indptr: list(&places.q_indptr),
            kv_lens: list(&places.kv_lens),
            out_slots: list(&places.out_slots),
            logit_rows: list(&places.logit_rows),
            carried_rows: list(&places.carried_rows),
            state_read: list(&places.state_read),
            state_write: list(&places.state_write),
            state_snapshots: list(&places.state_snapshots),
            sampling: bytemuck::cast_slice(list(&places.sampling_rows)),
            token_counts: bytemuck::cast_slice(list(&places.token_counts)),
            page_table: list(&places.page_table),
            window_out_slots: list(&places.window_out_slots),
            window_page_table: list(&places.window_page_table),
            has_window: plan.shape.has_window,
            stride: plan.shape.page_table_stride,
            num_real: if plan.shape.is_padded {
                plan.shape.num_outputs
            } else {
                plan.shape.num_seqs
            },
        }
    }

    /// The sequence of a row.
    fn seq_of(&self, row: usize) -> usize {
        let begun = |&first: &u32| first as usize <= row;
        self.q_indptr.partition_point(begun) - 1
    }

    /// Padding is behind all sequences that draw or have more to come, and its outputs are not read.
    fn is_padding(&self, seq: usize) -> bool {
        seq >= self.num_real
    }

    /// Tokens and how often the row counts them, by token.
    fn counts(&self, row: &SamplingRow) -> Vec<(u32, u32)> {
        let counts = row.counts_begin as usize..row.counts_end as usize;
        let counts = self.token_counts[counts].iter();
        let mut counts: Vec<_> = counts.map(|c| (c.token, c.output_count)).collect();
        counts.sort_unstable();
        counts
    }

    fn used_slots(&self) -> impl Iterator<Item = u32> {
        let written = self.state_write.iter().chain(self.state_snapshots);
        let all = self.state_read.iter().chain(written);
        all.copied().filter(|&slot| slot != NO_SLOT)
    }

    /// The pages of a sequence; none for padding.
    fn pages(&self, seq: usize, page_size: usize) -> &'a [u32] {
        if self.is_padding(seq) {
            return &[];
        }
        let len = (self.kv_lens[seq] as usize).div_ceil(page_size);
        &self.page_table[seq * self.stride..][..len]
    }
}
