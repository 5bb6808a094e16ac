//! Which requests `Headroom` admits, and what it reserves.

use super::*;

const IDLE: Demand = Demand {
    available: full(1000),
    next_tokens: full(0),
    retractable: full(0),
    largest: full(0),
    retracted: full(0),
    reserved_decode_tokens: 100,
};

const fn full(tokens: usize) -> PerSpace {
    PerSpace {
        full: tokens,
        window: 0,
    }
}

fn mk_headroom(demand: Demand) -> Headroom {
    let spaces = Spaces {
        page_size: 16,
        window: None,
    };
    Headroom::new(spaces, demand)
}

#[test]
fn every_request_keeps_room_for_its_next_tokens() {
    let mut headroom = mk_headroom(Demand {
        next_tokens: full(300),
        retractable: full(5000),
        ..IDLE
    });
    assert!(headroom.try_take(500, 0, 4000));
    assert!(!headroom.try_take(1, 0, 4000));
}

#[test]
fn the_largest_running_request_can_finish_if_all_others_retract() {
    let demand = Demand {
        next_tokens: full(100),
        retractable: full(400),
        largest: full(1300),
        ..IDLE
    };
    let mut headroom = mk_headroom(demand);
    assert!(headroom.try_take(50, 0, 50));
    assert!(!headroom.try_take(1, 0, 1));
}

#[test]
fn a_request_that_could_never_finish_here_is_not_admitted() {
    assert!(!mk_headroom(IDLE).try_take(10, 0, 991));
    assert!(mk_headroom(IDLE).try_take(10, 0, 990));
}

#[test]
fn retracted_requests_come_before_new_ones() {
    let mut headroom = mk_headroom(Demand {
        retracted: full(950),
        ..IDLE
    });
    assert!(!headroom.try_take(60, 0, 1));
    assert!(headroom.try_take(40, 0, 1));
}

#[test]
fn a_short_answer_reserves_no_more_than_itself() {
    let mut headroom = mk_headroom(Demand {
        available: full(20),
        ..IDLE
    });
    assert!(headroom.try_take(10, 0, 10));
}

#[test]
fn pages_that_others_hold_already_are_not_taken_again() {
    let demand = Demand {
        available: full(100),
        retractable: full(500),
        ..IDLE
    };
    assert!(!mk_headroom(demand).try_take(500, 0, 10));
    let mut headroom = mk_headroom(demand);
    assert!(headroom.try_take(500, 450, 10), "60 of 100");
    assert!(!headroom.try_take(500, 450, 10));
}

#[test]
fn a_window_is_all_that_a_long_request_takes_of_its_space() {
    let spaces = Spaces {
        page_size: 16,
        window: Some(32),
    };
    let available = PerSpace {
        full: 10_000,
        window: 130,
    };
    let mut headroom = Headroom::new(spaces, Demand { available, ..IDLE });
    assert!(headroom.try_take(1000, 0, 100), "64 of 130");
    assert!(headroom.try_take(1000, 0, 100), "128 of them");
    assert!(!headroom.try_take(3, 0, 1));
}
