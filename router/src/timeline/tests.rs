//! Facts about timelines.

use super::*;

fn room(room: u64) -> BootstrapRoom {
    BootstrapRoom::new(room).unwrap()
}

#[test]
fn stages_are_listed_as_far_as_they_were_reached() {
    let timeline = Timeline::default();
    let entry = timeline.open(room(7), 2, 10, 11);
    timeline.mark_first_byte(entry, 12);
    let stages = |number| {
        let found = timeline.get(room(number))?;
        Some(found.events.iter().map(|event| event.at_unix_ns).collect())
    };
    assert_eq!(stages(8), Some(vec![10, 11, 12]));
    timeline.mark_done(entry, 13);
    assert_eq!(stages(7), Some(vec![10, 11, 12, 13]));
    assert_eq!(stages(9), None);
}

#[test]
fn the_oldest_makes_way_and_late_marks_of_it_hit_no_other() {
    let timeline = Timeline::default();
    let first = timeline.open(room(1), 1, 10, 11);
    for number in 0..CAPACITY as u64 {
        timeline.open(room(100 + number), 1, 20, 21);
    }
    timeline.mark_done(first, 99);
    assert_eq!(timeline.get(room(1)), None);
    let next = timeline.get(room(100)).unwrap();
    assert_eq!(next.events.len(), 2);
}
