//! Links that go down, and devices that are pulled.

use super::*;
use crate::{DeviceEvent, OpenError, PortState};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

fn state(end: &End) -> PortState {
    end.device.ports().expect("the device answers")[0].state
}

fn event(end: &End) -> Option<DeviceEvent> {
    end.device.next_event().expect("the device answers")
}

#[test]
fn a_cut_link_is_reported_and_fails_writes_from_and_to_its_device() {
    let Stand {
        loopback,
        a,
        b,
        mut from_a,
        mut from_b,
    } = mk_stand();
    loopback.cut("b", true);
    loopback.cut("b", true);
    assert_eq!((state(&a), state(&b)), (PortState::Active, PortState::Down));
    assert_eq!(event(&b), Some(DeviceEvent::PortDown { port: 1 }));
    assert_eq!((event(&a), event(&b)), (None, None));
    b.device
        .choose_port(&PortWish::default())
        .expect_err("no port is active");

    post_plain(&mut from_a, &a, b.at(0), 1);
    post_plain(&mut from_a, &a, b.at(0), 2);
    let lost = WcStatus::RETRY_EXC_ERR;
    assert_eq!(a.poll_failures(), [(1, lost), (2, WcStatus::WR_FLUSH_ERR)]);
    post_plain(&mut from_b, &b, a.at(0), 3);
    assert_eq!(b.poll_failures(), [(3, lost)]);

    loopback.cut("b", false);
    assert_eq!(event(&b), Some(DeviceEvent::PortActive { port: 1 }));
    post_plain(&mut from_a, &a, b.at(0), 4);
    assert_eq!(a.poll_failures(), [(4, WcStatus::WR_FLUSH_ERR)]);
    let (mut from_a, _from_b) = connect(&a, &b);
    post_plain(&mut from_a, &a, b.at(0), 5);
    assert_eq!(a.poll(), [written(&from_a, 5)]);
}

#[test]
fn a_cut_link_without_traffic_does_no_harm() {
    let Stand {
        loopback,
        a,
        b,
        mut from_a,
        from_b: _from_b,
    } = mk_stand();
    loopback.cut("a", true);
    loopback.cut("a", false);
    post_plain(&mut from_a, &a, b.at(0), 1);
    assert_eq!(a.poll(), [written(&from_a, 1)]);
}

/// A connection with a write from `a` that waits for a receive.
fn mk_waiting() -> Stand {
    let mut stand = mk_stand();
    let Stand { a, b, from_a, .. } = &mut stand;
    post(from_a, (&a.region, 0, 64), b.at(0), Some(1), 1);
    assert_eq!(a.poll(), []);
    stand
}

#[test]
fn a_write_that_waits_for_a_receive_fails_when_the_link_is_cut_or_the_peer_is_gone() {
    let lost = [(1, WcStatus::RETRY_EXC_ERR)];
    let stand = mk_waiting();
    stand.loopback.cut("b", true);
    assert_eq!(stand.a.poll_failures(), lost);

    let stand = mk_waiting();
    stand.loopback.remove("b");
    assert_eq!(stand.a.poll_failures(), lost);

    let stand = mk_waiting();
    let _failed = stand.from_b.fail().expect("the device answers");
    assert_eq!(stand.a.poll_failures(), lost);

    let stand = mk_waiting();
    drop(stand.from_b);
    assert_eq!(stand.a.poll_failures(), lost);
}

#[test]
fn a_pulled_device_refuses_all_and_its_peers_get_no_answer() {
    let Stand {
        loopback,
        a,
        b,
        mut from_a,
        mut from_b,
    } = mk_stand();
    b.completions.arm().expect("the device answers");
    let name = loopback.name("b");
    loopback.remove("b");
    loopback.remove("b");

    // Waiters on its files wake up.
    assert!(is_readable(&b.device));
    let completions_file = b.completions.events_file().expect("it has one");
    assert!(is_readable(completions_file));
    assert_eq!(event(&b), Some(DeviceEvent::DeviceFatal));
    let gone = [
        b.device.next_event().map(|_| ()),
        b.completions.take_events().map(|_| ()),
        b.completions.poll(&mut Vec::new(), 1),
        b.completions.arm(),
        b.device.capabilities().map(|_| ()),
        b.device.ports().map(|_| ()),
        ProtectionDomain::new(&b.device).map(|_| ()),
        CompletionQueue::new(&b.device, 1).map(|_| ()),
        b.domain
            .register(Arc::clone(&b.memory), WRITABLE)
            .map(|_| ()),
        from_b.post_receives(1).map(|_| ()),
    ];
    for call in gone {
        let error = call.expect_err("the device is gone");
        assert!(error.is_device_gone(), "{error}");
    }
    let src = [b.region.range(0, 64).expect("inside")];
    let write = Write {
        src: &src,
        dst: a.at(0),
        immediate: None,
        tag: 1,
        signalled: true,
    };
    from_b.post(&[write]).expect_err("the device is gone");
    from_b.fail().expect_err("the device is gone");

    let verbs = Loopback::open().expect("it opens");
    let names = verbs.device_names().expect("the other is there");
    assert!(!names.contains(&name));
    let opened = verbs.open_device(&name).expect_err("it is gone");
    assert!(
        matches!(opened, OpenError::UnknownDevice { .. }),
        "{opened}"
    );
    assert_eq!(b.device.locality(), crate::Locality::default());

    post_plain(&mut from_a, &a, b.at(0), 1);
    assert_eq!(a.poll_failures(), [(1, WcStatus::RETRY_EXC_ERR)]);
}

/// It never stops waiting for an event that was taken and not acknowledged.
#[test]
fn a_queue_whose_device_was_pulled_behind_an_event_is_given_up_at_once() {
    let Stand {
        loopback,
        a,
        b,
        mut from_a,
        from_b: _from_b,
    } = mk_stand();
    a.completions.arm().expect("the device answers");
    post_plain(&mut from_a, &a, b.at(0), 1);
    loopback.remove("a");
    a.completions
        .take_events()
        .expect_err("behind the event there is no device");
    let (given_up, is_given_up) = mpsc::channel();
    thread::spawn(move || {
        drop((from_a, a.completions));
        let _ = given_up.send(());
    });
    let ended = is_given_up.recv_timeout(Duration::from_secs(20));
    ended.expect("the queue has ended");
}

#[test]
fn memory_of_a_pulled_device_is_leaked() {
    let loopback = Loopback::new(&["a"]);
    let End { memory, region, .. } = mk_end(&loopback, "a");
    loopback.remove("a");
    drop(region);
    assert_eq!(Arc::strong_count(&memory), 2, "nothing reports it as free");
}
