//! The window space of the device: a slot holds a token with its position, as in the full space. Every row of a step
//! finds its window there, and nothing before the step's first window is read.

use super::Inputs;
use crate::event_loop::tests::Sizes;
use crate::kvcache::WindowPageIdx;
use pd_compute::kv::NO_SLOT;
use std::collections::HashSet;
use std::ops::Range;

#[derive(Debug)]
pub(super) struct WindowSlots {
    window: usize,
    page_size: usize,
    /// Token and position.
    slots: Vec<Option<(u32, u32)>>,
}

// === impl WindowSlots ===

impl WindowSlots {
    pub(super) fn new(window: usize, sizes: &Sizes) -> Self {
        Self {
            window,
            page_size: sizes.page_size,
            slots: vec![None; sizes.page_size * sizes.num_window_pages],
        }
    }

    pub(super) fn write(&mut self, inputs: &Inputs<'_>, tokens: &[u32]) {
        let rows = tokens.iter().zip(inputs.positions);
        for (&slot, (&token, &position)) in inputs.window_out_slots.iter().zip(rows) {
            if slot != NO_SLOT {
                self.slots[slot as usize] = Some((token, position));
            }
        }
    }

    /// Each row sees in its window what it sees in the full space.
    pub(super) fn check(&self, inputs: &Inputs<'_>, full: &[Option<(u32, u32)>]) {
        for seq in 0..inputs.num_real {
            let first = inputs.q_indptr[seq] as usize;
            let len = inputs.kv_lens[seq] as usize;
            let from = inputs.positions[first] as usize;
            for position in self.seen_from(from)..len {
                let seen = self.slots[self.slot(inputs.window_page_table, inputs, seq, position)];
                let expected = full[self.slot(inputs.page_table, inputs, seq, position)];
                assert_eq!(seen, expected, "the window of sequence {seq} at {position}");
                assert_eq!(seen.map(|(_, at)| at as usize), Some(position));
            }
        }
    }

    pub(super) fn assert_uses_none_of(&self, inputs: &Inputs<'_>, free: &HashSet<WindowPageIdx>) {
        for seq in 0..inputs.num_real {
            for place in self.places(inputs, seq) {
                let page = inputs.window_page_table[seq * inputs.stride + place];
                assert!(
                    !free.contains(&WindowPageIdx(page)),
                    "window page {page} given back while a step uses it"
                );
            }
        }
    }

    /// Of the pages that a step reads or writes of a sequence.
    fn places(&self, inputs: &Inputs<'_>, seq: usize) -> Range<usize> {
        let first = inputs.q_indptr[seq] as usize;
        let from = self.seen_from(inputs.positions[first] as usize);
        from / self.page_size..(inputs.kv_lens[seq] as usize).div_ceil(self.page_size)
    }

    fn seen_from(&self, position: usize) -> usize {
        (position + 1).saturating_sub(self.window)
    }

    fn slot(&self, table: &[u32], inputs: &Inputs<'_>, seq: usize, position: usize) -> usize {
        let page = table[seq * inputs.stride + position / self.page_size] as usize;
        page * self.page_size + position % self.page_size
    }
}
