//! Files that become readable, and stay so until their events are taken.

use super::*;
use crate::DeviceEvent;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

#[test]
fn an_armed_queue_reports_the_next_completion_once() {
    let Stand {
        a,
        b,
        mut from_a,
        from_b: _from_b,
        ..
    } = mk_stand();
    let file = a.completions.events_file().expect("it has one");
    post_plain(&mut from_a, &a, b.at(0), 1);
    assert!(!is_readable(file), "it was not armed");
    a.completions.arm().expect("the device answers");
    assert!(!is_readable(file), "it was there before");
    post_plain(&mut from_a, &a, b.at(0), 2);
    post_plain(&mut from_a, &a, b.at(0), 3);
    assert!(is_readable(file));
    let take = || a.completions.take_events().expect("the device answers");
    assert_eq!(take(), 1);
    assert_eq!(take(), 0);
    assert!(!is_readable(file));
    post_plain(&mut from_a, &a, b.at(0), 4);
    assert!(!is_readable(file), "it was not armed again");
    assert_eq!(a.poll().len(), 4);
}

#[test]
fn an_immediate_and_a_flush_are_reported_as_well() {
    let Stand {
        a,
        b,
        mut from_a,
        mut from_b,
        ..
    } = mk_stand();
    let file = b.completions.events_file().expect("it has one");
    from_b.post_receives(2).expect("no error");
    b.completions.arm().expect("the device answers");
    post(&mut from_a, (&a.region, 0, 64), b.at(0), Some(1), 1);
    assert!(is_readable(file));
    assert_eq!(b.completions.take_events().expect("it answers"), 1);
    b.completions.arm().expect("the device answers");
    let _failed = from_b.fail().expect("the device answers");
    assert!(is_readable(file));
}

#[test]
fn a_queue_can_be_destroyed_with_pending_events() {
    let Stand {
        a,
        b,
        mut from_a,
        from_b: _from_b,
        ..
    } = mk_stand();
    a.completions.arm().expect("the device answers");
    post_plain(&mut from_a, &a, b.at(0), 1);
    drop(from_a);
    let End {
        completions,
        device,
        ..
    } = a;
    drop(completions);
    CompletionQueue::with_events(&device, 1).expect("the device is well");
}

#[test]
fn a_device_notifies_each_of_its_users_in_order() {
    let loopback = Loopback::new(&["a", "b"]);
    let open = || {
        let device = Loopback::open()
            .expect("it opens")
            .open_device(&loopback.name("a"));
        device.expect("it is listed")
    };
    let users = [open(), open()];
    loopback.cut("a", true);
    loopback.cut("b", true);
    loopback.cut("a", false);
    for user in users {
        for event in [
            DeviceEvent::PortDown { port: 1 },
            DeviceEvent::PortActive { port: 1 },
        ] {
            assert!(is_readable(&user));
            let found = user.next_event().expect("the device answers");
            assert_eq!(found, Some(event));
        }
        assert!(!is_readable(&user));
        assert_eq!(user.next_event().expect("the device answers"), None);
    }
}

#[test]
fn an_event_of_a_destroyed_queue_pair_is_withdrawn() {
    let Stand {
        a,
        b,
        mut from_a,
        from_b,
        ..
    } = mk_stand();
    let RemoteAddr { addr, .. } = b.at(0);
    let rkey = crate::RKey(1);
    post_plain(&mut from_a, &a, RemoteAddr { addr, rkey }, 1);
    assert!(is_readable(&b.device));
    drop(from_b);
    assert!(!is_readable(&b.device));
    assert_eq!(b.device.next_event().expect("the device answers"), None);
}

#[test]
fn a_file_that_was_made_blocking_is_waited_for() {
    let loopback = Loopback::new(&["a"]);
    let device = Loopback::open()
        .expect("it opens")
        .open_device(&loopback.name("a"));
    let device = device.expect("it is listed");
    let flags = fcntl_getfl(&device).expect("the file is open");
    fcntl_setfl(&device, flags - OFlags::NONBLOCK).expect("the file is open");
    let event = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| device.next_event().expect("the device answers"));
        loopback.cut("a", true);
        waiting.join().expect("it does not panic")
    });
    assert_eq!(event, Some(DeviceEvent::PortDown { port: 1 }));
}
