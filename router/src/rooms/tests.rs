//! Facts about rooms in flight.

use super::*;
use proptest::prelude::*;

#[test]
fn a_room_in_flight_is_not_drawn_again() {
    let rooms = Rooms::default();
    let held = rooms.draw(1, || 41);
    let mut bits = [41, 41, 6].into_iter();
    let next = rooms.draw(1, || bits.next().unwrap());
    assert_eq!((held.first().get(), next.first().get()), (42, 7));
    drop(held);
    assert_eq!(rooms.draw(1, || 41).first().get(), 42);
}

proptest! {
    #[test]
    fn ranges_in_flight_never_meet(draws in prop::collection::vec((0u64..200, 1u32..8), 1..40)) {
        let rooms = Rooms::default();
        let mut spare = 1000u64;
        let mut held: Vec<RoomRange> = Vec::new();
        for (bits, count) in draws {
            let mut next = Some(bits);
            held.push(rooms.draw(count, || next.take().unwrap_or_else(|| { spare += 100; spare })));
        }
        let mut all: Vec<u64> = held
            .iter()
            .flat_map(|range| (0..range.count()).map(|i| range.first().item(i).unwrap().get()))
            .collect();
        let drawn = all.len();
        all.sort_unstable();
        all.dedup();
        prop_assert_eq!(all.len(), drawn);
        drop(held);
        prop_assert_eq!(rooms.len(), 0);
    }
}
