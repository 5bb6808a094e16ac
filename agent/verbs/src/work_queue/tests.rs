//! The accounts against a plain list of what a device holds.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// What may happen to a send queue.
#[derive(Clone, Debug)]
enum Step {
    /// Requests posted in one chain, each with its wish for a completion; the device takes only
    /// the first `taken`.
    Post { wishes: Vec<bool>, taken: usize },
    /// The device ends requests up to its n-th signalled one.
    Complete { nth: usize },
    /// The queue pair fails: every request it holds is flushed with a completion of its own.
    Flush,
}

fn mk_step() -> impl Strategy<Value = Step> {
    let wishes = prop::collection::vec(any::<bool>(), 1..12);
    prop_oneof![
        8 => (wishes, 0..16_usize).prop_map(|(wishes, taken)| Step::Post { wishes, taken }),
        6 => (0..4_usize).prop_map(|nth| Step::Complete { nth }),
        1 => Just(Step::Flush),
    ]
}

/// The device: its requests, oldest first, and whether each will complete visibly.
#[derive(Default)]
struct Device {
    held: VecDeque<(Admitted, u64)>,
    posted: u64,
}

impl Device {
    fn post(&mut self, queue: &mut WorkQueue, wishes: &[bool], taken: usize) {
        let mut chain = Vec::new();
        for &wish in wishes {
            let tag = self.posted + chain.len() as u64;
            match queue.push(tag, wish) {
                Some(admitted) => chain.push((admitted, tag)),
                None => break,
            }
        }
        let refused = chain.len().saturating_sub(taken);
        chain.truncate(taken);
        queue.take_back(u32::try_from(refused).expect("a short chain"));
        self.posted += chain.len() as u64;
        self.held.extend(chain);
    }

    fn complete(&mut self, queue: &mut WorkQueue, nth: usize) {
        let mut signalled = self
            .held
            .iter()
            .enumerate()
            .filter(|(_, (a, _))| a.signalled);
        let Some((end, &(admitted, tag))) = signalled.nth(nth) else {
            return;
        };
        assert_eq!(queue.retire(admitted.position), Some(tag));
        self.held.drain(..=end);
    }
}

proptest! {
    #[test]
    fn the_accounts_are_those_of_the_device(
        capacity in 0..24_u32,
        start in prop_oneof![Just(0), Just(u32::MAX - 3), any::<u32>()],
        steps in prop::collection::vec(mk_step(), 1..60),
    ) {
        let mut queue = WorkQueue::starting_at(capacity, start);
        let mut device = Device::default();
        for step in steps {
            match step {
                Step::Post { wishes, taken } => device.post(&mut queue, &wishes, taken),
                Step::Complete { nth } => device.complete(&mut queue, nth),
                Step::Flush => for (admitted, tag) in device.held.drain(..) {
                    prop_assert_eq!(queue.retire(admitted.position), Some(tag));
                },
            }
            prop_assert!(device.held.len() <= capacity as usize, "the device's queue overflowed");
            prop_assert_eq!(queue.outstanding() as usize, device.held.len());
            prop_assert_eq!(queue.free() + queue.outstanding(), capacity);
        }
    }

    #[test]
    fn a_caller_that_never_signals_still_gets_its_queue_back(
        capacity in 0..40_u32,
        chains in prop::collection::vec(1..30_usize, 1..40),
    ) {
        let mut queue = WorkQueue::new(capacity);
        let mut device = Device::default();
        for len in chains {
            device.post(&mut queue, &vec![false; len], len);
            while device.held.iter().any(|(admitted, _)| admitted.signalled) {
                device.complete(&mut queue, 0);
            }
            prop_assert!(queue.free() >= capacity.div_ceil(2), "the queue is clogged");
        }
    }
}

#[test]
fn a_position_that_the_device_does_not_hold_frees_nothing() {
    let mut queue = WorkQueue::new(4);
    assert_eq!(queue.retire(0), None);
    queue.push(7, true);
    assert_eq!(queue.retire(1), None);
    assert_eq!(queue.retire(0), Some(7));
    assert_eq!(queue.retire(0), None, "a completion counts once");
    assert_eq!(queue.free(), 4);
}

#[test]
fn half_a_queue_at_most_goes_unsignalled() {
    let mut queue = WorkQueue::new(8);
    let signalled: Vec<bool> = (0..8)
        .map(|tag| queue.push(tag, false).expect("it fits").signalled)
        .collect();
    assert_eq!(
        signalled,
        [false, false, false, true, false, false, false, true]
    );
    assert_eq!(queue.push(8, true), None);
}
