//! Which request loses its pages when the running batch outgrows the pool: the one with the
//! shortest answer loses least. The mode decides what follows: recomputation, or a copy in host
//! memory.

use crate::req::Req;
use std::cmp::Reverse;

/// Index of the request to retract: fewest answer tokens, then longest prompt, then newest.
pub(crate) fn victim(running: &[Req]) -> Option<usize> {
    let cost = |req: &Req| (req.output_len(), Reverse(req.prompt_len), Reverse(req.id));
    let least = running.iter().enumerate().min_by_key(|(_, req)| cost(req));
    least.map(|(index, _)| index)
}
