//! `Headroom`: how many slots of decode's pool future requests may take. Pure arithmetic.

use crate::schedule::CLIP_MAX_NEW_TOKENS;

/// SGLang's `_allocatable_tokens`: slots available to future requests without starving the present
/// ones. Source: docs/sglang-protocol.md#decode-memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headroom {
    /// Already excludes the slots that running, arriving and arrived requests keep for their next
    /// tokens, and those that retracted ones need to return. Negative if there are too few.
    allocatable: i64,
    /// Slots that retracting all running requests would free.
    retractable: i64,
    /// SGLang's `--num-reserved-decode-tokens`.
    reserved_decode_tokens: usize,
}

/// What [`Headroom`] is computed from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) available: usize,
    /// Requests that are running, arriving or waiting to run.
    pub(crate) num_reqs: usize,
    pub(crate) retractable: usize,
    /// Prompt and clipped answer of the largest running request.
    pub(crate) largest: usize,
    /// Tokens of retracted requests, with what is reserved for each.
    pub(crate) retracted: usize,
    pub(crate) reserved_decode_tokens: usize,
}

// === impl Headroom ===

impl Headroom {
    pub(crate) fn new(demand: Demand) -> Self {
        let retractable = to_i64(demand.retractable);
        let next_tokens = to_i64(demand.reserved_decode_tokens * demand.num_reqs);
        let largest_alone = to_i64(demand.largest) - retractable;
        let kept = next_tokens.max(largest_alone) + to_i64(demand.retracted);
        Self {
            allocatable: to_i64(demand.available) - kept,
            retractable,
            reserved_decode_tokens: demand.reserved_decode_tokens,
        }
    }

    /// Takes slots for a request of `len` tokens whose answer may still get `remaining_len`, if it
    /// fits now, and could finish if all others were retracted.
    pub(crate) fn try_take(&mut self, len: usize, remaining_len: usize) -> bool {
        let now = to_i64(len + self.reserved_decode_tokens.min(remaining_len));
        let at_last = to_i64(len + remaining_len.min(CLIP_MAX_NEW_TOKENS)) - self.retractable;
        if now.max(at_last) > self.allocatable {
            return false;
        }
        self.allocatable -= now;
        true
    }
}

fn to_i64(len: usize) -> i64 {
    i64::try_from(len).expect("a pool has fewer than 2^63 slots")
}

#[cfg(test)]
mod tests;
