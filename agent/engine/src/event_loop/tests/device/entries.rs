//! A draft layer of the device: its entry in a slot is the token after the slot's, with the slot's position, and what it
//! makes of an entry is the tokens up to that one. What it drafts is right, if it finds the right entries and states.

use super::{Inputs, LOST, State, next_penalised, next_token};
use crate::step::StepPlan;
use pd_compute::kv::NO_SLOT;
use pd_compute::{NO_ROW, NO_TOKEN, SamplingRow};

#[derive(Debug)]
pub(super) struct Entries {
    /// Token and position.
    slots: Vec<Option<(u32, u32)>>,
    /// Of each output of the last step.
    kept: Vec<Vec<u32>>,
    /// Of each draft of the last step of drafts.
    chains: Vec<Vec<u32>>,
}

// === impl Entries ===

impl Entries {
    pub(super) fn new(num_slots: usize) -> Self {
        Self {
            slots: vec![None; num_slots],
            kept: Vec::new(),
            chains: Vec::new(),
        }
    }
}

// === impl State ===

impl State {
    /// Behind a step of the model over `tokens`, which drew `drawn`.
    pub(super) fn extend(&mut self, plan: &StepPlan, tokens: &[u32], drawn: &[u32]) {
        let inputs = Inputs::of(plan);
        let places = &plan.places;
        let outputs = &plan.words[places.next_rows.clone()];
        let mut next = plan.words[places.next_tokens.clone()].to_vec();
        for (next, &output) in next.iter_mut().zip(outputs) {
            if output != NO_ROW {
                assert_eq!(*next, NO_TOKEN, "a token is known or drawn");
                *next = drawn[output as usize];
            }
        }
        self.write_entries(&inputs, &next);
        let rows = inputs.logit_rows.iter().map(|&row| row as usize);
        let rows = rows.take(plan.shape.num_outputs);
        let made = rows.map(|row| {
            let seq = inputs.seq_of(row);
            let position = inputs.positions[row];
            let first = inputs.q_indptr[seq] as usize;
            let slot = |position: u32| inputs.slot(seq, position, self.page_size);
            let token = |position: u32| match position.checked_sub(inputs.positions[first]) {
                Some(place) => tokens[first + place as usize],
                None => self.slots[slot(position)].expect("it was computed").0,
            };
            let mut seen: Vec<u32> = (0..=position).map(token).collect();
            self.assert_entries(&inputs, seq, &seen[..=inputs.positions[first] as usize]);
            seen.push(next[row]);
            seen
        });
        self.entries.kept = made.collect();
    }

    /// The first draft of each chain.
    pub(super) fn begin_chains(&mut self, plan: &StepPlan) -> Vec<u32> {
        let inputs = Inputs::of(plan);
        let rows = plan.words[plan.places.draft_rows.clone()].iter();
        let chains = rows.map(|&row| self.entries.kept[row as usize].clone());
        self.entries.chains = chains.collect();
        self.draw_drafts(&inputs)
    }

    /// The next draft of each chain.
    pub(super) fn continue_chains(&mut self, plan: &StepPlan) -> Vec<u32> {
        let inputs = Inputs::of(plan);
        let rows = plan.words[plan.places.draft_rows.clone()].iter();
        let chains = rows.zip(inputs.token_ids).zip(inputs.positions);
        let chains = chains.map(|((&row, &draft), &position)| {
            let mut chain = self.entries.chains[row as usize].clone();
            chain.push(draft);
            assert_eq!(
                chain.len(),
                position as usize + 2,
                "the entry before the draft"
            );
            chain
        });
        self.entries.chains = chains.collect();
        self.write_entries(&inputs, inputs.token_ids);
        for (seq, chain) in self.entries.chains.iter().enumerate() {
            self.assert_entries(&inputs, seq, chain);
        }
        self.draw_drafts(&inputs)
    }

    fn write_entries(&mut self, inputs: &Inputs<'_>, next: &[u32]) {
        let rows = inputs.out_slots.iter().zip(next).zip(inputs.positions);
        for ((&slot, &next), &position) in rows {
            if slot != NO_SLOT {
                self.entries.slots[slot as usize] = Some((next, position));
            }
        }
    }

    /// The entries of all `tokens` but the last are there. One at the end of a page may be another request's, which has
    /// the page in common and goes on with another token.
    fn assert_entries(&self, inputs: &Inputs<'_>, seq: usize, tokens: &[u32]) {
        for (position, &after) in (0u32..).zip(&tokens[1..]) {
            let slot = inputs.slot(seq, position, self.page_size);
            let (next, at) = self.entries.slots[slot].expect("each token has an entry");
            assert_eq!(at, position, "a slot holds the entry of its position");
            let is_at_end = (position as usize + 1).is_multiple_of(self.page_size);
            assert!(
                next == after || is_at_end,
                "{next} for {after} after {position}"
            );
        }
    }

    fn draw_drafts(&self, inputs: &Inputs<'_>) -> Vec<u32> {
        let rows = self.entries.chains.iter().zip(inputs.sampling);
        let draw = |(chain, sampling): (&Vec<u32>, &SamplingRow)| {
            assert_eq!(
                sampling.position as usize,
                chain.len(),
                "the token that is drawn"
            );
            let token = match inputs.counts(sampling) {
                counts if counts.is_empty() => next_token(chain),
                counts => next_penalised(chain, &counts),
            };
            let is_lost = self.loses && token == LOST;
            if is_lost { NO_TOKEN } else { token }
        };
        rows.map(draw).collect()
    }
}

// === impl Inputs ===

impl Inputs<'_> {
    fn slot(&self, seq: usize, position: u32, page_size: usize) -> usize {
        let position = position as usize;
        let page = self.pages(seq, page_size)[position / page_size] as usize;
        page * page_size + position % page_size
    }
}
