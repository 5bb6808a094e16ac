//! The queue of events is bounded, and its sender never waits.

use super::{EVENTS_MAX, Event, notify};
use pd_protocol::BootstrapRoom;
use pd_protocol::control::Generation;
use tokio::sync::mpsc;

fn mk_abort(generation: u64) -> Event {
    let room = BootstrapRoom::new(1).unwrap();
    Event::Aborted(room, Generation(generation))
}

#[test]
fn a_peer_that_floods_the_rails_is_lost_with_a_reason() {
    let (events, mut task) = mpsc::channel(EVENTS_MAX);
    for n in 0..EVENTS_MAX as u64 {
        assert!(notify(&events, mk_abort(n), |reason| panic!("{reason}")));
    }
    let mut lost = None;
    assert!(notify(&events, mk_abort(0), |reason| lost =
        Some(reason.to_string())));
    let reason = lost.expect("the queue is full");
    assert!(reason.contains("4096 rail messages at once"), "{reason}");
    // The task takes one, and the next fits.
    assert!(task.try_recv().is_ok());
    assert!(notify(&events, mk_abort(0), |reason| panic!("{reason}")));
}

#[test]
fn a_task_that_has_ended_takes_no_event() {
    let (events, task) = mpsc::channel(EVENTS_MAX);
    drop(task);
    assert!(!notify(&events, mk_abort(0), |reason| panic!("{reason}")));
}
