//! `least_loaded`: fewest tokens, then fewest requests. Equals are taken in a random rotation, so
//! that an idle pool is not served by its first worker alone.

use super::load::Load;
use super::random::random;

pub(super) fn least_loaded(loads: &[Load], draw: u64) -> usize {
    let start = random(loads.len(), draw);
    (0..loads.len())
        .map(|step| (start + step) % loads.len())
        .min_by_key(|&idx| loads[idx])
        .expect("a pool of two or more has a least")
}
