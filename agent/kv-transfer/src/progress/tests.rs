//! Facts about who hears of a room's state, and when.

use super::*;
use futures_util::FutureExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A room's state, and how often its engine was woken.
fn mk_progress() -> (Progress, Arc<AtomicUsize>) {
    let wakes = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&wakes);
    let waker: Waker = Arc::new(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    (Progress::new(waker), wakes)
}

#[test]
fn what_comes_first_is_done_before_a_thread_wakes() {
    let (progress, wakes) = mk_progress();
    let mut seen = None;
    progress.advance_with(KvPoll::Success, || {
        seen = Some((progress.poll(), wakes.load(Ordering::Relaxed)));
    });
    assert_eq!(seen, Some((KvPoll::Success, 0)));
    assert_eq!(wakes.load(Ordering::Relaxed), 1);
    assert!(!progress.advance_with(KvPoll::Success, || panic!("nothing changes")));
}

#[test]
fn a_quiet_change_wakes_once_it_is_announced() {
    let (progress, wakes) = mk_progress();
    let mut begun = Box::pin(progress.reached(KvPoll::Transferring));
    progress.advance_quietly(KvPoll::Transferring);
    assert_eq!(progress.poll(), KvPoll::Transferring);
    assert_eq!((&mut begun).now_or_never(), None);
    assert_eq!(wakes.load(Ordering::Relaxed), 0);
    progress.announce();
    progress.announce();
    assert_eq!(begun.now_or_never(), Some(KvPoll::Transferring));
    assert_eq!(wakes.load(Ordering::Relaxed), 1);
}

#[test]
fn an_end_leaves_nothing_to_announce() {
    let (progress, wakes) = mk_progress();
    progress.advance_quietly(KvPoll::Transferring);
    let before = progress.fail(FailureReason::application("why"));
    assert_eq!(before, Some(KvPoll::Transferring));
    progress.announce();
    assert_eq!(wakes.load(Ordering::Relaxed), 1);
    assert!(progress.failure().is_some());
}
