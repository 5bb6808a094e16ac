//! `Headroom`: how many slots of decode's pool future requests may take. Pure arithmetic.

use crate::kvcache::spaces::{PerSpace, Spaces};
use crate::schedule::CLIP_MAX_NEW_TOKENS;

/// SGLang's `_allocatable_tokens`: slots available to future requests without starving the present
/// ones. Source: docs/sglang-protocol.md#decode-memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headroom {
    spaces: Spaces,
    full: Room,
    window: Room,
    /// SGLang's `--num-reserved-decode-tokens`.
    reserved_decode_tokens: usize,
}

/// Of one space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Room {
    /// Already excludes the slots that running, arriving and arrived requests keep for their next
    /// tokens, and those that retracted ones need to return. Negative if there are too few.
    allocatable: i64,
    /// Slots that retracting all running requests would free.
    retractable: i64,
}

/// What [`Headroom`] is computed from, in tokens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) available: PerSpace,
    /// Of requests that are running, arriving or waiting to run.
    pub(crate) next_tokens: PerSpace,
    pub(crate) retractable: PerSpace,
    /// Prompt and clipped answer of the largest running request.
    pub(crate) largest: PerSpace,
    /// Tokens of retracted requests, with what is reserved for each.
    pub(crate) retracted: PerSpace,
    pub(crate) reserved_decode_tokens: usize,
}

// === impl Headroom ===

impl Headroom {
    pub(crate) fn new(spaces: Spaces, demand: Demand) -> Self {
        let room = |of: fn(PerSpace) -> usize| {
            let of = |tokens: PerSpace| to_i64(of(tokens));
            let retractable = of(demand.retractable);
            let largest_alone = of(demand.largest) - retractable;
            let kept = of(demand.next_tokens).max(largest_alone) + of(demand.retracted);
            Room {
                allocatable: of(demand.available) - kept,
                retractable,
            }
        };
        Self {
            spaces,
            full: room(|tokens| tokens.full),
            window: room(|tokens| tokens.window),
            reserved_decode_tokens: demand.reserved_decode_tokens,
        }
    }

    /// Takes slots for a request of `len` tokens whose answer may still get `remaining_len`, if it
    /// fits now, and could finish if all others were retracted. Others hold pages of its first `shared` tokens already.
    pub(crate) fn try_take(&mut self, len: usize, shared: usize, remaining_len: usize) -> bool {
        let reserved = self.reserved_decode_tokens.min(remaining_len);
        let mut now = self.spaces.tokens(len + reserved);
        now.full -= shared;
        let at_last = self
            .spaces
            .tokens(len + remaining_len.min(CLIP_MAX_NEW_TOKENS));
        let fits =
            self.full.has(now.full, at_last.full) && self.window.has(now.window, at_last.window);
        if fits {
            self.full.allocatable -= to_i64(now.full);
            self.window.allocatable -= to_i64(now.window);
        }
        fits
    }
}

// === impl Room ===

impl Room {
    fn has(&self, now: usize, at_last: usize) -> bool {
        let at_last = to_i64(at_last) - self.retractable;
        // Nothing is wanted of a space that the model does not have.
        now == 0 || to_i64(now).max(at_last) <= self.allocatable
    }
}

fn to_i64(len: usize) -> i64 {
    i64::try_from(len).expect("a pool has fewer than 2^63 slots")
}

#[cfg(test)]
mod tests;
