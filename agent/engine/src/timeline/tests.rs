//! The ring's bounds.

use super::*;

fn mk_room(room: u64) -> BootstrapRoom {
    BootstrapRoom::new(room).expect("a room")
}

#[test]
fn the_oldest_room_is_forgotten_first() {
    let timelines = Timelines::default();
    for room in 1..=ROOMS_MAX as u64 + 1 {
        timelines.record(mk_room(room), stage_now(Stage::PrefillQueued));
    }
    assert_eq!(timelines.events(mk_room(1)), None);
    assert!(timelines.events(mk_room(2)).is_some());
}

#[test]
fn events_of_a_room_are_bounded() {
    let timelines = Timelines::default();
    for _ in 0..EVENTS_MAX + 5 {
        timelines.record(mk_room(1), stage_now(Stage::ChunkSent));
    }
    assert_eq!(
        timelines.events(mk_room(1)).map(|events| events.len()),
        Some(EVENTS_MAX)
    );
}
