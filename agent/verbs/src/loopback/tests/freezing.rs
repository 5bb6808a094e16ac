//! Devices that hold writes for a while, and what happens meanwhile.

use super::*;

#[test]
fn a_frozen_device_holds_its_own_writes_and_takes_those_of_others() {
    let Stand {
        loopback,
        a,
        b,
        mut from_a,
        mut from_b,
    } = mk_stand();
    loopback.freeze("a", true);
    post_plain(&mut from_a, &a, b.at(0), 1);
    post_plain(&mut from_a, &a, b.at(0), 2);
    post_plain(&mut from_b, &b, a.at(4096), 3);
    assert_eq!((loopback.held("a"), loopback.held("b")), (2, 0));
    assert_eq!((loopback.landed("a"), loopback.landed("b")), (1, 0));
    assert_eq!(a.poll(), []);
    loopback.freeze("a", false);
    assert_eq!((loopback.held("a"), loopback.landed("b")), (0, 2));
    assert_eq!(a.poll(), [written(&from_a, 1), written(&from_a, 2)]);
}

#[test]
fn held_writes_are_carried_out_in_the_order_of_their_posts_over_all_queue_pairs() {
    let Stand {
        loopback,
        a,
        b,
        mut from_a,
        from_b: _from_b,
    } = mk_stand();
    let (mut other, _other_b) = connect(&a, &b);
    loopback.freeze("a", true);
    post_plain(&mut other, &a, b.at(0), 1);
    post_plain(&mut from_a, &a, b.at(0), 2);
    post_plain(&mut other, &a, b.at(0), 3);
    loopback.freeze("a", false);
    let expected = [written(&other, 1), written(&from_a, 2), written(&other, 3)];
    assert_eq!(a.poll(), expected);
}

#[test]
fn inline_bytes_are_those_of_the_post_and_others_those_of_the_moment() {
    let Stand {
        loopback,
        a,
        b,
        mut from_a,
        from_b: _from_b,
    } = mk_stand();
    assert_eq!(from_a.inline_bytes(), 32);
    a.fill(0, &[1; 64]);
    loopback.freeze("a", true);
    post(&mut from_a, (&a.region, 0, 32), b.at(0), None, 1);
    post(&mut from_a, (&a.region, 0, 33), b.at(100), None, 2);
    a.fill(0, &[2; 64]);
    loopback.freeze("a", false);
    assert_eq!(
        (b.bytes(0, 32), b.bytes(100, 33)),
        (vec![1; 32], vec![2; 33])
    );
}

#[test]
fn held_writes_of_a_destroyed_queue_pair_are_gone() {
    let Stand {
        loopback,
        a,
        b,
        mut from_a,
        from_b: _from_b,
    } = mk_stand();
    loopback.freeze("a", true);
    post_plain(&mut from_a, &a, b.at(0), 1);
    drop(from_a);
    assert_eq!(loopback.held("a"), 0);
    loopback.freeze("a", false);
    assert_eq!((a.poll(), loopback.landed("b")), (vec![], 0));
}

#[test]
fn held_writes_to_a_destroyed_queue_pair_fail_and_touch_nothing() {
    let Stand {
        loopback,
        a,
        b,
        mut from_a,
        from_b,
    } = mk_stand();
    a.fill(0, &[1; 64]);
    loopback.freeze("a", true);
    post_plain(&mut from_a, &a, b.at(0), 1);
    post_plain(&mut from_a, &a, b.at(0), 2);
    drop(from_b);
    assert_eq!(a.poll(), []);
    loopback.freeze("a", false);
    let failures = [(1, WcStatus::RETRY_EXC_ERR), (2, WcStatus::WR_FLUSH_ERR)];
    assert_eq!(a.poll_failures(), failures);
    assert_eq!(b.bytes(0, BYTES), vec![0; BYTES]);
}

#[test]
fn a_failed_queue_pair_flushes_what_its_frozen_device_holds() {
    let Stand {
        loopback,
        a,
        b,
        mut from_a,
        from_b: _from_b,
    } = mk_stand();
    loopback.freeze("a", true);
    post_plain(&mut from_a, &a, b.at(0), 1);
    let _failed = from_a.fail().expect("the device answers");
    assert_eq!(a.poll_failures(), [(1, WcStatus::WR_FLUSH_ERR)]);
    loopback.freeze("a", false);
    assert_eq!(loopback.landed("b"), 0);
}

#[test]
fn a_link_that_is_cut_while_its_device_is_frozen_fails_what_was_held() {
    let Stand {
        loopback,
        a,
        b,
        mut from_a,
        from_b: _from_b,
    } = mk_stand();
    loopback.freeze("a", true);
    post_plain(&mut from_a, &a, b.at(0), 1);
    loopback.cut("a", true);
    assert_eq!(a.poll(), []);
    loopback.freeze("a", false);
    assert_eq!(a.poll_failures(), [(1, WcStatus::RETRY_EXC_ERR)]);
}
