//! `power_of_two`: the less loaded of two workers drawn at random, which keeps routers that do
//! not see each other from herding onto one worker.

use super::load::Load;
use super::random::random;

pub(super) fn power_of_two(loads: &[Load], draw: u64) -> usize {
    let first = random(loads.len(), draw);
    let step = 1 + random(loads.len() - 1, draw.rotate_left(32));
    let second = (first + step) % loads.len();
    if loads[second] < loads[first] {
        second
    } else {
        first
    }
}
