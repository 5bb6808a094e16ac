//! Writes that a device refuses, here or at the peer, and what that ends.

use super::*;
use crate::{DeviceEvent, Direction, Endpoint, RKey};

/// The peer refuses this destination, and both ends learn of it.
fn assert_refused(stand: Stand, dst: RemoteAddr) {
    let Stand {
        loopback,
        a,
        b,
        mut from_a,
        mut from_b,
    } = stand;
    from_b.post_receives(1).expect("no error");
    a.fill(0, &[1; 64]);
    post_plain(&mut from_a, &a, dst, 1);
    post_plain(&mut from_a, &a, b.at(0), 2);
    assert_eq!(
        a.poll_failures(),
        [(1, WcStatus::REM_ACCESS_ERR), (2, WcStatus::WR_FLUSH_ERR)]
    );
    let [Completion::Failed(flushed)] = &b.poll()[..] else {
        panic!("the peer's receive is flushed");
    };
    assert_eq!(
        (flushed.direction, flushed.status),
        (Direction::Receive, WcStatus::WR_FLUSH_ERR)
    );
    let qp_num = from_b.qp_num();
    let event = b.device.next_event().expect("the device answers");
    assert_eq!(event, Some(DeviceEvent::QueuePairFailed { qp_num }));
    assert_eq!(loopback.landed("b"), 0);
    assert_eq!(b.bytes(0, BYTES), vec![0; BYTES]);
    // The peer's end is of no use, either.
    post_plain(&mut from_b, &b, a.at(0), 3);
    assert_eq!(b.poll_failures(), [(3, WcStatus::WR_FLUSH_ERR)]);
}

#[test]
fn a_key_of_nothing_is_refused() {
    let stand = mk_stand();
    let RemoteAddr { addr, .. } = stand.b.at(0);
    let rkey = RKey(u32::MAX);
    assert_refused(stand, RemoteAddr { addr, rkey });
}

#[test]
fn a_local_key_is_no_remote_key() {
    let stand = mk_stand();
    let RemoteAddr { addr, .. } = stand.b.at(0);
    let rkey = RKey(stand.b.region.lkey().0);
    assert_refused(stand, RemoteAddr { addr, rkey });
}

#[test]
fn a_write_that_leaves_the_region_is_refused() {
    let stand = mk_stand();
    let RemoteAddr { addr, rkey } = stand.b.at(0);
    let addr = addr + BYTES as u64 - 63;
    assert_refused(stand, RemoteAddr { addr, rkey });
}

#[test]
fn an_address_near_the_end_of_all_is_refused() {
    let stand = mk_stand();
    let RemoteAddr { rkey, .. } = stand.b.at(0);
    let addr = u64::MAX - 8;
    assert_refused(stand, RemoteAddr { addr, rkey });
}

#[test]
fn a_region_that_is_not_open_to_writes_refuses_them() {
    let stand = mk_stand();
    let memory = Arc::new(HostMemory::zeroed(64));
    let region = stand.b.domain.register(memory, Registration::default());
    let region = region.expect("a region");
    let dst = region.remote().at(0, 64).expect("inside");
    assert_refused(stand, dst);
}

#[test]
fn a_region_of_another_domain_refuses_writes() {
    let stand = mk_stand();
    let other = ProtectionDomain::new(&stand.b.device).expect("a domain");
    let memory = Arc::new(HostMemory::zeroed(64));
    let region = other.register(memory, WRITABLE).expect("a region");
    let dst = region.remote().at(0, 64).expect("inside");
    assert_refused(stand, dst);
}

#[test]
fn a_region_that_was_given_up_refuses_writes() {
    let stand = mk_stand();
    let memory = Arc::new(HostMemory::zeroed(64));
    let region = stand.b.domain.register(Arc::clone(&memory), WRITABLE);
    let region = region.expect("a region");
    let dst = region.remote().at(0, 64).expect("inside");
    drop(region);
    assert_eq!(Arc::strong_count(&memory), 1);
    assert_refused(stand, dst);
}

#[test]
fn a_source_that_was_given_up_fails_at_the_sender_alone() {
    let Stand {
        loopback,
        a,
        b,
        mut from_a,
        mut from_b,
    } = mk_stand();
    let memory = Arc::new(HostMemory::zeroed(64));
    let region = a.domain.register(memory, Registration::default());
    let region = region.expect("a region");
    loopback.freeze("a", true);
    post(&mut from_a, (&region, 0, 64), b.at(0), None, 1);
    drop(region);
    loopback.freeze("a", false);
    assert_eq!(a.poll_failures(), [(1, WcStatus::LOC_PROT_ERR)]);
    assert_eq!(b.device.next_event().expect("the device answers"), None);
    // The peer's end is alive, but nothing answers it any more.
    from_b.post_receives(1).expect("no error");
    assert_eq!(b.poll(), []);
    post_plain(&mut from_b, &b, a.at(0), 2);
    let [first, _receive] = b.poll_failures()[..] else {
        panic!("a write and a receive");
    };
    assert_eq!(first, (2, WcStatus::RETRY_EXC_ERR));
}

#[test]
fn a_peer_that_is_not_connected_yet_does_not_answer() {
    let loopback = Loopback::new(&["a", "b"]);
    let (a, b) = (mk_end(&loopback, "a"), mk_end(&loopback, "b"));
    let (from_a, from_b) = (a.init(), b.init());
    let mut from_a = tie(from_a, &from_b.endpoint(), WITHOUT_LIMIT);
    post_plain(&mut from_a, &a, b.at(0), 1);
    assert_eq!(a.poll_failures(), [(1, WcStatus::RETRY_EXC_ERR)]);
}

#[test]
fn a_peer_that_receives_and_does_not_send_yet_takes_writes() {
    let loopback = Loopback::new(&["a", "b"]);
    let (a, b) = (mk_end(&loopback, "a"), mk_end(&loopback, "b"));
    let (from_a, from_b) = (a.init(), b.init());
    let (to_a, to_b) = (from_a.endpoint(), from_b.endpoint());
    let path = PathOptions::default();
    let _from_b = from_b.connect(&to_a, path).expect("a path");
    let mut from_a = tie(from_a, &to_b, WITHOUT_LIMIT);
    post_plain(&mut from_a, &a, b.at(0), 1);
    assert_eq!(a.poll(), [written(&from_a, 1)]);
}

#[test]
fn an_end_whose_peer_was_not_resolved_in_time_is_connected_later() {
    let loopback = Loopback::new(&["a", "b"]);
    let (a, b) = (mk_end(&loopback, "a"), mk_end(&loopback, "b"));
    let (mut from_a, from_b) = (a.init(), b.init());
    from_a.post_receives(1).expect("no error");
    let (to_a, to_b) = (from_a.endpoint(), from_b.endpoint());
    loopback.lose_peers("a", 1);
    let path = PathOptions::default();
    let unconnected = from_a.connect(&to_b, path).expect_err("not resolved");
    let text = unconnected.to_string();
    assert!(
        text.contains("ibv_modify_qp") && text.contains("to RTR"),
        "{text}"
    );
    let from_a = unconnected.end.expect("it is as it was");
    let mut from_b = tie(from_b, &to_a, WITHOUT_LIMIT);
    let _from_a = from_a.connect(&to_b, path).expect("a path");
    post(&mut from_b, (&b.region, 0, 64), a.at(0), Some(5), 1);
    assert_eq!(b.poll(), [written(&from_b, 1)]);
    let received = a.poll();
    let is_received = matches!(received[..], [Completion::Immediate { immediate: 5, .. }]);
    assert!(is_received, "its receive was kept: {received:?}");
}

#[test]
fn an_end_that_the_device_refuses_is_gone() {
    let loopback = Loopback::new(&["a", "b"]);
    let (a, b) = (mk_end(&loopback, "a"), mk_end(&loopback, "b"));
    let (from_a, to_b) = (a.init(), b.init().endpoint());
    loopback.remove("a");
    let unconnected = from_a.connect(&to_b, PathOptions::default());
    assert!(unconnected.expect_err("it is pulled").end.is_none());
}

/// What `b` answers that took this for the endpoint of `a`.
fn answer_to_impostor(impostor: impl Fn(&End, &Endpoint) -> Endpoint) -> Vec<(u64, WcStatus)> {
    let loopback = Loopback::new(&["a", "b", "c"]);
    let [a, b, c] = ["a", "b", "c"].map(|device| mk_end(&loopback, device));
    let (from_a, from_b) = (a.init(), b.init());
    let (to_a, to_b) = (from_a.endpoint(), from_b.endpoint());
    let _from_b = tie(from_b, &impostor(&c, &to_a), WITHOUT_LIMIT);
    let mut from_a = tie(from_a, &to_b, WITHOUT_LIMIT);
    post_plain(&mut from_a, &a, b.at(0), 1);
    a.poll_failures()
}

#[test]
fn a_peer_that_is_connected_to_another_does_not_answer() {
    let refused = [(1, WcStatus::RETRY_EXC_ERR)];
    // Queue pairs of two devices have the same numbers, so the address makes the difference.
    let of_another_device = answer_to_impostor(|c, to_a| {
        let end = c.init().endpoint();
        assert_eq!(end.qp_num(), to_a.qp_num());
        end
    });
    assert_eq!(of_another_device, refused);
    let of_another_number = answer_to_impostor(|_, to_a| Endpoint {
        qp_num: to_a.qp_num + 1,
        ..*to_a
    });
    assert_eq!(of_another_number, refused);
    let of_another_life = answer_to_impostor(|_, to_a| Endpoint {
        psn: to_a.psn + 1,
        ..*to_a
    });
    assert_eq!(of_another_life, refused);
}

#[test]
fn a_failed_queue_pair_flushes_what_it_holds_and_what_comes() {
    let Stand {
        a,
        b,
        mut from_a,
        mut from_b,
        ..
    } = mk_stand();
    from_a.post_receives(2).expect("no error");
    // It waits for a receive.
    post(&mut from_a, (&a.region, 0, 64), b.at(0), Some(1), 1);
    let _failed = from_a.fail().expect("the device answers");
    let flushed = WcStatus::WR_FLUSH_ERR;
    assert_eq!(
        a.poll_failures(),
        [(1, flushed), (0, flushed), (0, flushed)]
    );
    from_b.post_receives(1).expect("no error");
    assert_eq!(b.poll(), [], "the write is no more");
    // The peer's first write fails, and then all that comes.
    post_plain(&mut from_b, &b, a.at(0), 1);
    post_plain(&mut from_b, &b, a.at(0), 2);
    assert_eq!(from_b.post_receives(1).expect("no error"), 1);
    assert_eq!(
        b.poll_failures(),
        [
            (1, WcStatus::RETRY_EXC_ERR),
            (0, flushed),
            (2, flushed),
            (0, flushed)
        ]
    );
}
