//! When drafts are switched off, and on again.

use super::*;

const COST: f64 = 0.2;

/// A window of steps with four drafts each.
fn window(switch: &mut Switch, accepted: usize) {
    for _ in 0..WINDOW / 4 {
        switch.verified(4, accepted, COST);
    }
}

/// How many tokens it takes until drafts are tried again.
fn rested(switch: &mut Switch) -> usize {
    (1..)
        .find(|_| {
            switch.rest(1);
            switch.is_on()
        })
        .unwrap()
}

#[test]
fn drafts_that_cost_more_than_they_save_are_switched_off() {
    let mut switch = Lately::default().switch();
    window(&mut switch, 1);
    assert!(switch.is_on(), "a quarter is more than a fifth");
    window(&mut switch, 0);
    assert!(!switch.is_on());
}

#[test]
fn they_are_tried_again_less_and_less_often_until_they_pay() {
    let mut switch = Lately::default().switch();
    window(&mut switch, 0);
    let mut rests = Vec::new();
    for _ in 0..7 {
        rests.push(rested(&mut switch));
        window(&mut switch, 0);
        assert!(!switch.is_on());
    }
    assert_eq!(rests, [32, 64, 128, 256, 512, 1024, 1024]);
    rested(&mut switch);
    window(&mut switch, 4);
    assert!(switch.is_on());
    window(&mut switch, 0);
    assert_eq!(
        rested(&mut switch),
        32,
        "success forgets the failures before"
    );
}

#[test]
fn a_trial_must_pay_with_a_margin() {
    let mut switch = Lately::default().switch();
    window(&mut switch, 0);
    rested(&mut switch);
    switch.verified(WINDOW * 5, WINDOW * 5 / 4 - 1, COST);
    assert!(!switch.is_on(), "a bit less than a quarter");
    rested(&mut switch);
    switch.verified(WINDOW * 5, WINDOW * 5 / 4, COST);
    assert!(switch.is_on());
    switch.verified(WINDOW * 5, WINDOW * 5 / 5, COST);
    assert!(switch.is_on(), "what is on stays on at the cost");
}

#[test]
fn drafts_that_are_always_right_pay_unless_they_cost_more_than_a_token() {
    let after = |row_cost| {
        let mut switch = Lately::default().switch();
        window(&mut switch, 0);
        rested(&mut switch);
        switch.verified(WINDOW, WINDOW, row_cost);
        switch.is_on()
    };
    assert_eq!([0.9, 1.0, 1.1].map(after), [true, true, false]);
}

#[test]
fn requests_begin_where_the_last_ones_left_off() {
    let lately = Lately::default();
    let together = [(); 3].map(|()| lately.switch());
    for mut switch in together {
        assert!(switch.is_on());
        window(&mut switch, 0);
    }
    let mut next = lately.switch();
    assert_eq!(rested(&mut next), 32, "they failed once");
    let mut trial = lately.switch();
    assert!(trial.is_on(), "its tokens counted for all");
    window(&mut trial, 0);
    assert_eq!(rested(&mut lately.switch()), 64);
    window(&mut next, 4);
    assert!(lately.switch().is_on());
    assert_eq!(lately.switch().course.rest, REST_MIN);
}
