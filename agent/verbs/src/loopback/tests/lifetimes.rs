//! What comes into being with a loopback, and what is left when things go.

use super::*;
use crate::loopback::completion::{Cq, Entry, Outcome};
use crate::loopback::objects::{ContextId, Kept, NicId, QpId};
use crate::loopback::queue_pair::{Position, WorkQueue};
use crate::loopback::{class, objects};
use crate::{Features, GidKind, IpFamily, LinkLayer, Locality, OpenError, PortState};
use rustix::io::Errno;

#[test]
fn devices_have_names_and_addresses_of_their_own() {
    let (one, other) = (Loopback::new(&["a", "b"]), Loopback::new(&["a"]));
    assert_ne!(one.name("a"), other.name("a"));
    let names = Loopback::open()
        .expect("it opens")
        .device_names()
        .expect("there are some");
    let expected = [one.name("a"), one.name("b"), other.name("a")];
    assert!(
        expected.iter().all(|name| names.contains(name)),
        "{names:?}"
    );
    let ends = [mk_end(&one, "a"), mk_end(&one, "b"), mk_end(&other, "a")];
    let gids = ends.each_ref().map(|end| end.port.gid);
    assert!(gids[0] != gids[1] && gids[0] != gids[2] && gids[1] != gids[2]);
    // They can be connected nevertheless.
    let (mut from_a, _from_b) = connect(&ends[0], &ends[2]);
    post_plain(&mut from_a, &ends[0], ends[2].at(0), 1);
    assert_eq!(ends[0].poll(), [written(&from_a, 1)]);
}

#[test]
fn a_device_looks_like_one_of_roce() {
    let loopback = Loopback::new(&["a"]);
    let End { device, port, .. } = mk_end(&loopback, "a");
    let ports = device.ports().expect("the device answers");
    assert_eq!(ports.len(), 1);
    assert_eq!(ports[0].state, PortState::Active);
    assert_eq!(ports[0].link_layer, LinkLayer::Ethernet);
    assert_eq!(ports[0].mbit_per_s, Some(400_000));
    let gids = &ports[0].gids;
    assert_eq!((gids.len(), gids[0].kind), (1, GidKind::RoceV2));
    assert_eq!(
        (gids[0].gid, gids[0].gid.family()),
        (port.gid, IpFamily::V4)
    );
    assert_eq!(
        device.probe_features().expect("the device answers"),
        Features {
            dma_buf: false,
            on_demand_paging: false,
            relaxed_ordering: true,
        }
    );
}

#[test]
fn what_is_open_outlives_its_loopback_and_its_folder_goes_last() {
    let Stand {
        loopback,
        a,
        b,
        mut from_a,
        from_b,
    } = mk_stand();
    let (name, verbs) = (loopback.name("a"), Loopback::open().expect("it opens"));
    let _keeps_the_library = Loopback::new(&["other"]);
    drop(loopback);
    let error = verbs.open_device(&name).expect_err("it is not listed");
    assert!(matches!(error, OpenError::UnknownDevice { .. }), "{error}");
    post_plain(&mut from_a, &a, b.at(0), 1);
    assert_eq!(a.poll(), [written(&from_a, 1)]);
    let ports = a.device.ports().expect("the device answers");
    assert_eq!(ports[0].gids.len(), 1);
    let folder = class::folder().join(name);
    assert!(folder.exists());
    drop((a, b, from_a, from_b));
    assert!(!folder.exists());
}

#[test]
fn a_device_has_no_place_until_it_is_given_one() {
    let loopback = Loopback::new(&["a"]);
    let End { device, .. } = mk_end(&loopback, "a");
    assert_eq!(device.locality(), Locality::default());
    loopback.set_numa_node("a", 3);
    assert_eq!(device.locality().numa_node, Some(3));
    loopback.set_numa_node("a", 0);
    assert_eq!(device.locality().numa_node, Some(0));
}

#[test]
#[should_panic(expected = "there is no device c among these")]
fn a_device_of_no_name_here_is_a_mistake() {
    Loopback::new(&["a", "b"]).cut("c", true);
}

#[test]
fn completions_of_a_destroyed_queue_pair_are_gone() {
    let Stand {
        a,
        b,
        mut from_a,
        from_b: _from_b,
        ..
    } = mk_stand();
    post_plain(&mut from_a, &a, b.at(0), 1);
    drop(from_a);
    assert_eq!(a.poll(), []);
}

fn mk_entry(position: u64) -> Entry {
    let nic = NicId(0);
    Entry {
        qp: QpId { nic, num: 2 },
        position: Position::Send(position),
        wr_id: position,
        outcome: Outcome::Written,
    }
}

/// The crate's accounts keep this from happening, so it takes the queue itself.
#[test]
#[should_panic(expected = "a loopback completion queue of 2 entries overflows")]
fn a_completion_queue_that_overflows_says_so() {
    let mut cq = Cq::new(ContextId(0), None, Kept(std::ptr::null_mut()), 2);
    cq.push(mk_entry(0));
    cq.push(mk_entry(1));
    cq.pop().expect("the first");
    cq.push(mk_entry(2));
    cq.push(mk_entry(3));
}

/// As above.
#[test]
fn a_place_in_a_work_queue_is_free_when_a_completion_of_it_or_a_later_one_was_polled() {
    let mut queue = WorkQueue::new(objects::CqId(0), 2);
    assert_eq!((queue.push('a'), queue.push('b')), (Ok(()), Ok(())));
    assert_eq!((queue.pop(), queue.pop()), (Some((0, 'a')), Some((1, 'b'))));
    assert_eq!(queue.push('c'), Err(Errno::NOMEM));
    queue.free_through(1);
    assert_eq!((queue.push('c'), queue.push('d')), (Ok(()), Ok(())));
    assert_eq!(queue.push('e'), Err(Errno::NOMEM));
}
