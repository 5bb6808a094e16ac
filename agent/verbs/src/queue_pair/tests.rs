//! Life of a queue pair on a fake device: what reaches the device, what fits, and the order of
//! drops.

use super::*;
use crate::completion::{Completion, CompletionQueue};
use crate::device::Verbs;
use crate::endpoint::{Gid, Mtu};
use crate::ffi::fake::{self, completion};
use crate::memory::{HostMemory, MemoryRegion, RKey, Registration, RemoteAddr};
use crate::port::LinkLayer;
use crate::status::WcStatus;
use crate::work_request::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

const OPTIONS: QueuePairOptions = QueuePairOptions {
    send_depth: 4,
    receive_depth: 3,
    ranges_max: 2,
    inline_bytes: 256,
};

struct Stand {
    domain: ProtectionDomain,
    completions: CompletionQueue,
    region: MemoryRegion,
}

fn mk_stand(depth: u32) -> Stand {
    let verbs = Verbs::over(fake::library(), Path::new("/nowhere"));
    let device = verbs.open_device("fake0").expect("it is there");
    let domain = ProtectionDomain::new(&device).expect("a domain");
    let completions = CompletionQueue::with_events(&device, depth).expect("a queue");
    let memory = Arc::new(HostMemory::zeroed(4096));
    let region = domain
        .register(memory, Registration::default())
        .expect("a region");
    Stand {
        domain,
        completions,
        region,
    }
}

fn mk_port() -> LocalPort {
    LocalPort {
        number: 1,
        link_layer: LinkLayer::Ethernet,
        mtu: Mtu::B4096,
        lid: 0,
        gid_index: 1,
        gid: Gid::from(Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped()),
        mbit_per_s: None,
        message_bytes_max: 2048,
    }
}

impl Stand {
    fn create(&self) -> Result<QueuePair<Reset>, CreateError> {
        QueuePair::new(&self.domain, &self.completions, &self.completions, OPTIONS)
    }

    fn init(&self) -> QueuePair<Init> {
        let created = self.create().expect("it fits");
        created.init(&mk_port(), 7).expect("the device takes it")
    }

    fn connect(&self) -> QueuePair<Rts> {
        let end = self.init();
        let peer = end.endpoint();
        let end = end.connect(&peer, PathOptions::default()).expect("a path");
        end.start(Retry::default()).expect("the device takes it")
    }

    fn poll(&self) -> Vec<Completion> {
        let mut found = Vec::new();
        self.completions
            .poll(&mut found, 100)
            .expect("the device answers");
        found
    }
}

/// A write of no bytes.
fn mk_write(tag: u64, signalled: bool) -> Write<'static> {
    let dst = RemoteAddr {
        addr: 0x1000,
        rkey: RKey(5),
    };
    Write {
        src: &[],
        dst,
        immediate: None,
        tag,
        signalled,
    }
}

/// The device's names of what was posted in its n-th call.
fn posted(call: usize) -> Vec<u64> {
    fake::with(|f| {
        f.posted[call]
            .iter()
            .map(|(request, _)| request.wr_id)
            .collect()
    })
}

#[test]
fn everything_goes_before_what_it_was_made_from() {
    let stand = mk_stand(64);
    let end = stand.connect();
    let Stand {
        domain,
        completions,
        region,
    } = stand;
    // The owner lets go in the worst order.
    drop((domain, completions));
    drop(end);
    drop(region);
    let log = fake::with(|f| f.log.clone());
    let steps = ["state 1", "state 2", "state 3"];
    let ends = [
        "queue pair",
        "completions",
        "channel",
        "region",
        "domain",
        "device",
    ];
    assert_eq!(log, [&steps[..], &ends].concat());
}

#[test]
fn a_region_that_the_device_keeps_takes_its_memory_with_it() {
    let Stand { domain, .. } = mk_stand(64);
    let memory = Arc::new(HostMemory::zeroed(64));
    let register = || domain.register(Arc::clone(&memory), Registration::default());
    drop(register().expect("a region"));
    assert_eq!(Arc::strong_count(&memory), 1);
    fake::with(|f| f.keeps_memory = true);
    drop(register().expect("a region"));
    assert_eq!(
        Arc::strong_count(&memory),
        2,
        "a peer may still write there"
    );
}

#[test]
fn a_chain_reaches_the_device_in_one_call_as_it_was_stated() {
    let stand = mk_stand(64);
    fake::with(|f| f.inline_bytes_max = 64);
    let mut end = stand.connect();
    assert_eq!(end.inline_bytes(), 64, "256 and 128 were refused");
    let ranges = [(0, 100), (1000, 28), (8, 64)]
        .map(|(offset, len)| stand.region.range(offset, len).expect("inside"));
    let first = Write {
        src: &ranges[..2],
        ..mk_write(1, false)
    };
    let small = Write {
        src: &ranges[2..],
        ..mk_write(2, false)
    };
    let last = Write {
        immediate: Some(0xa1b2_c3d4),
        ..mk_write(3, true)
    };
    assert_eq!(end.post(&[first, small, last]).expect("they fit"), 3);

    let chain = fake::with(|f| f.posted.remove(0));
    let flags: Vec<u32> = chain
        .iter()
        .map(|(request, _)| request.send_flags)
        .collect();
    let (signalled, inline) = (ffi::IBV_SEND_SIGNALED, ffi::IBV_SEND_INLINE);
    assert_eq!(
        flags,
        [0, signalled | inline, signalled],
        "half the queue is never unsignalled"
    );
    let lens: Vec<Vec<u32>> = chain
        .iter()
        .map(|(_, ranges)| ranges.iter().map(|range| range.length).collect())
        .collect();
    assert_eq!(lens, [vec![100, 28], vec![64], vec![]]);
    let gathered = &chain[0].1;
    assert_eq!(gathered[1].addr - gathered[0].addr, 1000);
    assert_eq!(gathered[0].lkey, 0x11);
    let (request, _) = chain[2];
    assert_eq!(request.opcode, ffi::IBV_WR_RDMA_WRITE_WITH_IMM);
    assert_eq!(
        request.imm_data.to_ne_bytes(),
        [0xa1, 0xb2, 0xc3, 0xd4],
        "network order"
    );
    assert_eq!((request.remote_addr, request.rkey), (0x1000, 5));
}

#[test]
fn what_does_not_fit_is_left_and_completions_make_room() {
    let stand = mk_stand(64);
    let mut end = stand.connect();
    let chain: Vec<Write<'_>> = (0..6).map(|tag| mk_write(tag, false)).collect();
    assert_eq!(end.post(&chain).expect("no error"), 4);
    assert_eq!(end.post(&chain[4..]).expect("no error"), 0);
    assert_eq!((end.free(), end.outstanding()), (0, 4));
    // The second was signalled unasked, and frees the first, too.
    fake::with(|f| {
        f.ring
            .push_back(completion(posted_in(f, 0, 1), 0, ffi::IBV_WC_RDMA_WRITE))
    });
    assert_eq!(stand.poll(), [Completion::Written { qp_num: 1, tag: 1 }]);
    assert_eq!(end.post(&chain[4..]).expect("no error"), 2);
}

fn posted_in(fake: &fake::Fake, call: usize, nr: usize) -> u64 {
    fake.posted[call][nr].0.wr_id
}

#[test]
fn what_the_device_refuses_is_not_counted() {
    let stand = mk_stand(64);
    let mut end = stand.connect();
    fake::with(|f| f.takes = Some(1));
    let chain = [0, 1, 2].map(|tag| mk_write(tag, false));
    let error = end.post(&chain).expect_err("the second is refused");
    assert!(matches!(error, PostError::Call { taken: 1, .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("ibv_post_send failed on fake0 queue pair"),
        "{error}"
    );
    assert_eq!(end.outstanding(), 1);
    fake::with(|f| f.takes = None);
    assert_eq!(end.post(&chain[1..]).expect("no error"), 2);
    let signalled = fake::with(|f| f.posted[1][0].0.send_flags);
    assert_eq!(
        signalled,
        ffi::IBV_SEND_SIGNALED,
        "the refused ones may have held the signal"
    );
}

#[test]
fn writes_that_can_never_be_taken_post_nothing() {
    let stand = mk_stand(64);
    let other = ProtectionDomain::new(stand.domain.device()).expect("a domain");
    let memory = Arc::new(HostMemory::zeroed(64));
    let foreign = other
        .register(memory, Registration::default())
        .expect("a region");
    let mut end = stand.connect();
    let mut refused = |src: &[_]| {
        let chain = [
            mk_write(0, false),
            Write {
                src,
                ..mk_write(1, false)
            },
        ];
        end.post(&chain).expect_err("it is refused").to_string()
    };
    let range = |len| stand.region.range(0, len).expect("inside");
    assert_eq!(
        refused(&[range(1); 3]),
        "write 1 gathers 3 ranges, and the queue pair takes 2"
    );
    let text = refused(&[range(2048), range(1)]);
    assert_eq!(
        text,
        "write 1 has 2049 bytes, and the port sends 2048 in one message"
    );
    let text = refused(&[foreign.range(0, 8).expect("inside")]);
    assert!(text.contains("another protection domain"), "{text}");
    assert!(fake::with(|f| f.posted.is_empty()));
}

#[test]
fn a_failure_is_named_and_flushed_writes_keep_their_tags() {
    let stand = mk_stand(64);
    let mut end = stand.connect();
    end.post(&[10, 11].map(|tag| mk_write(tag, false)))
        .expect("they fit");
    let names = posted(0);
    fake::with(|f| {
        f.ring
            .extend([completion(names[0], 12, 99), completion(names[1], 5, 99)])
    });
    let failed: Vec<_> = stand
        .poll()
        .into_iter()
        .map(|completion| match completion {
            Completion::Failed(error) => error,
            other @ (Completion::Written { .. }
            | Completion::Immediate { .. }
            | Completion::Stray { .. }) => panic!("no failure: {other:?}"),
        })
        .collect();
    assert_eq!(
        (failed[0].status, failed[0].tag),
        (WcStatus::RETRY_EXC_ERR, 10)
    );
    assert_eq!(
        (failed[1].status, failed[1].tag),
        (WcStatus::WR_FLUSH_ERR, 11)
    );
    let text = failed[0].to_string();
    for part in [
        "IBV_WC_RETRY_EXC_ERR (12)",
        "queue pair 1 of fake0",
        "0x51",
        "check its process",
    ] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

#[test]
fn receives_are_counted_and_immediates_arrive_in_host_order() {
    let stand = mk_stand(64);
    let mut end = stand.init();
    assert_eq!(end.post_receives(5).expect("no error"), 3);
    assert_eq!(end.post_receives(1).expect("no error"), 0);
    let name = fake::with(|f| f.received[0][0].wr_id);
    let mut arrived = completion(name, 0, ffi::IBV_WC_RECV_RDMA_WITH_IMM);
    arrived.imm_data = 77_u32.to_be();
    arrived.byte_len = 512;
    fake::with(|f| f.ring.push_back(arrived));
    let expected = Completion::Immediate {
        qp_num: 1,
        immediate: 77,
        bytes: 512,
    };
    assert_eq!(stand.poll(), [expected]);
    assert_eq!(end.receives_posted(), 2);
    fake::with(|f| f.takes = Some(0));
    end.post_receives(1).expect_err("the device refuses");
    assert_eq!(end.receives_posted(), 2);
}

#[test]
fn a_completion_queue_has_room_for_all_that_its_queue_pairs_may_hold() {
    let stand = mk_stand(10);
    let first = stand.create().expect("7 of 10");
    let error = stand.create().expect_err("it is full");
    assert!(
        error
            .to_string()
            .contains("has 10 entries, of which 7 are reserved"),
        "{error}"
    );
    drop(first);
    stand
        .create()
        .expect_err("completions of the first may be left");
    assert_eq!(stand.poll(), []);
    stand.create().expect("the queue was seen empty");
}

#[test]
fn completions_of_a_destroyed_queue_pair_are_dropped() {
    let stand = mk_stand(64);
    let mut old = stand.connect();
    old.post(&[mk_write(1, true)]).expect("it fits");
    let name = posted(0)[0];
    drop(old);
    let mut young = stand.connect();
    young.post(&[mk_write(2, true)]).expect("it fits");
    fake::with(|f| {
        f.ring
            .push_back(completion(name, 0, ffi::IBV_WC_RDMA_WRITE))
    });
    assert_eq!(stand.poll(), []);
    assert_eq!(young.outstanding(), 1);
}
