//! Which requests `Headroom` admits, and what it reserves.

use super::*;

const IDLE: Demand = Demand {
    available: 1000,
    num_reqs: 0,
    retractable: 0,
    largest: 0,
    retracted: 0,
    reserved_decode_tokens: 100,
};

#[test]
fn every_request_keeps_room_for_its_next_tokens() {
    let mut headroom = Headroom::new(Demand {
        num_reqs: 3,
        retractable: 5000,
        ..IDLE
    });
    assert!(headroom.try_take(500, 4000));
    assert!(!headroom.try_take(1, 4000));
}

#[test]
fn the_largest_running_request_can_finish_if_all_others_retract() {
    let demand = Demand {
        num_reqs: 1,
        retractable: 400,
        largest: 1300,
        ..IDLE
    };
    let mut headroom = Headroom::new(demand);
    assert!(headroom.try_take(50, 50));
    assert!(!headroom.try_take(1, 1));
}

#[test]
fn a_request_that_could_never_finish_here_is_not_admitted() {
    assert!(!Headroom::new(IDLE).try_take(10, 991));
    assert!(Headroom::new(IDLE).try_take(10, 990));
}

#[test]
fn retracted_requests_come_before_new_ones() {
    let mut headroom = Headroom::new(Demand {
        retracted: 950,
        ..IDLE
    });
    assert!(!headroom.try_take(60, 1));
    assert!(headroom.try_take(40, 1));
}

#[test]
fn a_short_answer_reserves_no_more_than_itself() {
    let mut headroom = Headroom::new(Demand {
        available: 20,
        ..IDLE
    });
    assert!(headroom.try_take(10, 10));
}
