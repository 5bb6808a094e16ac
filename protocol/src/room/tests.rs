//! Facts about rooms.

use super::*;
use proptest::prelude::*;

#[test]
fn zero_and_64_bit_numbers_are_refused() {
    assert_eq!(BootstrapRoom::new(0), Err(RoomError::Zero));
    assert_eq!(
        BootstrapRoom::new(1 << 63),
        Err(RoomError::TooLarge(1 << 63))
    );
    assert!(serde_json::from_str::<BootstrapRoom>("0").is_err());
}

proptest! {
    #[test]
    fn a_drawn_room_leaves_space_for_its_items(bits: u64, items in 1u32..10_000) {
        let room = BootstrapRoom::from_random(bits, items);
        prop_assert!(room.get() >= 1);
        prop_assert!(room.item(items - 1).is_some());
    }

    #[test]
    fn dp_rank_is_the_remainder(room in 1..=BootstrapRoom::MAX.get(), dp_size in 1u32..64) {
        let rank = BootstrapRoom::new(room).unwrap().dp_rank(dp_size);
        prop_assert_eq!(u64::from(rank), room % u64::from(dp_size));
    }
}
