//! Which request loses its pages when the running batch outgrows the pool: the one with the
//! shortest answer loses least. The mode decides what follows: recomputation, or a copy in host
//! memory.

use crate::active::Active;
use std::cmp::Reverse;

/// Index of the request to retract: fewest answer tokens, then longest prompt, then newest.
pub(crate) fn victim(running: &[Active]) -> Option<usize> {
    let cost = |active: &Active| {
        let req = &active.req;
        (req.output_len(), Reverse(req.prompt_len), Reverse(req.id))
    };
    let least = running.iter().enumerate();
    let least = least.min_by_key(|(_, active)| cost(active));
    least.map(|(index, _)| index)
}
