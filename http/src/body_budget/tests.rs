//! Facts about room for bodies.

use super::*;

#[test]
fn bodies_share_what_there_is_and_give_it_back() {
    let budget = BodyBudget::new(4 * PIECE_BYTES);
    let (mut one, mut other, mut small) = Default::default();
    budget.grow(&mut one, 3 * PIECE_BYTES).unwrap();
    budget.grow(&mut one, 3 * PIECE_BYTES + 1).unwrap();
    budget.grow(&mut other, PIECE_BYTES).unwrap();
    let refused = budget.grow(&mut other, 2 * PIECE_BYTES);
    assert_eq!(refused, Err(NoRoom));
    budget.grow(&mut small, PIECE_BYTES - 1).unwrap();
    drop(one);
    budget.grow(&mut other, 4 * PIECE_BYTES).unwrap();
    drop(other);
    assert_eq!(budget.pieces.available_permits(), 4);
}

#[test]
fn a_part_of_a_share_is_held_by_itself() {
    let budget = BodyBudget::new(4 * PIECE_BYTES);
    let mut share = BodyShare::default();
    assert_eq!(
        share
            .split_off(PIECE_BYTES)
            .0
            .map(|held| held.num_permits()),
        None
    );
    budget.grow(&mut share, 3 * PIECE_BYTES).unwrap();
    let held = share.split_off(PIECE_BYTES + 1);
    drop(share);
    assert_eq!(budget.pieces.available_permits(), 3);
    let mut held = held;
    let all = held.split_off(9 * PIECE_BYTES);
    drop(held);
    assert_eq!(budget.pieces.available_permits(), 3);
    drop(all);
    assert_eq!(budget.pieces.available_permits(), 4);
}
