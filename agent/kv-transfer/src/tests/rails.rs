//! Rails that fail, freeze and come back, over NICs within this process.

use super::fixture::{Fixture, PATIENCE, Worker, mk_transfer};
use crate::config::{RdmaConfig, TransferConfig, TransportChoice};
use crate::transport::rdma::connecting::RESOLVE_TRIES;
use crate::{KvReceiver, KvSender};
use pd_protocol::KvPoll;
use pd_protocol::Transport;
use pd_verbs::loopback::Loopback;
use std::time::Instant;

pub(super) const SRC: [u32; 9] = [9, 10, 11, 2, 40, 41, 5, 63, 0];
pub(super) const DST: [u32; 9] = [30, 31, 32, 33, 7, 8, 50, 1, 62];

fn mk_rdma(transport: TransportChoice, devices: &[&str]) -> TransferConfig {
    TransferConfig {
        rdma: RdmaConfig {
            devices: devices.iter().map(|&name| name.to_owned()).collect(),
            ..RdmaConfig::default()
        },
        ..mk_transfer(transport)
    }
}

pub(super) fn mk_pair(devices: &[&str]) -> Fixture {
    let transfer = mk_rdma(TransportChoice::Only(Transport::Rdma), devices);
    Fixture::with(transfer.clone(), transfer)
}

pub(super) fn nics(worker: &Worker) -> &Loopback {
    worker.nics.as_ref().expect("it has NICs")
}

/// Waits for what no side reports.
pub(super) fn wait_for(what: &str, reached: impl Fn() -> bool) {
    let began = Instant::now();
    while !reached() {
        assert!(began.elapsed() < PATIENCE, "never {what}");
        std::thread::yield_now();
    }
}

/// A room all of whose pages were handed over in one chunk; its row on both sides is its number.
pub(super) fn sent(pair: &Fixture, room: u32) -> (KvSender, KvReceiver) {
    let (sender, receiver) = pair.open(room.into(), &DST, room);
    pair.send(&sender, &SRC, 100, room);
    (sender, receiver)
}

pub(super) fn assert_success(
    pair: &Fixture,
    room: u32,
    (sender, receiver): (KvSender, KvReceiver),
) {
    pair.wait_end(&sender, &receiver);
    assert_eq!(receiver.failure_reason(), None);
    assert_eq!(sender.poll(), KvPoll::Success);
    pair.assert_arrived(room.into(), &SRC, &DST, room);
}

#[test]
fn many_rooms_at_once_arrive_over_two_nics() {
    let pair = mk_pair(&["a", "b"]);
    let rooms: Vec<_> = (1..8)
        .map(|room| {
            let pages: Vec<u32> = (0..8).map(|i| (room - 1) * 8 + i).collect();
            (room, pair.open(room.into(), &pages, room), pages)
        })
        .collect();
    for (room, (sender, _), pages) in &rooms {
        pair.send(sender, pages, 3, *room);
    }
    for (room, (sender, receiver), pages) in &rooms {
        pair.wait_end(sender, receiver);
        assert_eq!(receiver.poll(), KvPoll::Success);
        for (&page, cut) in pages.iter().flat_map(|page| [(page, 0), (page, 1)]) {
            let same = pair.prefill.page(cut, page) == pair.decode.page(cut, page);
            assert!(same, "page {page} of room {room}");
        }
    }
}

#[test]
fn a_rail_that_fails_under_a_room_leaves_it_to_the_other() {
    let pair = mk_pair(&["a", "b"]);
    assert_success(&pair, 1, sent(&pair, 1));
    let own = nics(&pair.prefill);
    own.freeze("a", true);
    own.freeze("b", true);
    let room = sent(&pair, 2);
    wait_for("writes are held", || own.held("a") + own.held("b") > 0);
    let (holds, other) = if own.held("a") > 0 {
        ("a", "b")
    } else {
        ("b", "a")
    };
    own.cut(holds, true);
    own.freeze(holds, false);
    own.freeze(other, false);
    assert_success(&pair, 2, room);
    // Both ways serve again once the link is back.
    own.cut(holds, false);
    assert_success(&pair, 3, sent(&pair, 3));
}

#[test]
fn a_nic_that_is_pulled_leaves_its_rooms_to_the_other() {
    for side in ["prefill", "decode"] {
        let pair = mk_pair(&["a", "b"]);
        assert_success(&pair, 1, sent(&pair, 1));
        let worker = match side {
            "prefill" => &pair.prefill,
            _ => &pair.decode,
        };
        nics(worker).remove("a");
        for room in 2..5 {
            assert_success(&pair, room, sent(&pair, room));
        }
    }
}

#[test]
fn the_only_rail_comes_back_after_a_cut() {
    let pair = mk_pair(&["a"]);
    assert_success(&pair, 1, sent(&pair, 1));
    let own = nics(&pair.prefill);
    own.freeze("a", true);
    let room = sent(&pair, 2);
    wait_for("writes are held", || own.held("a") > 0);
    // What was held fails, and the next offer finds the link whole.
    own.cut("a", true);
    own.cut("a", false);
    own.freeze("a", false);
    assert_success(&pair, 2, room);
}

/// The kernel looks for a peer for a second, and one that is busy answers later.
#[test]
fn a_peer_that_is_not_found_at_once_is_looked_for_again() {
    for side in ["prefill", "decode"] {
        let pair = mk_pair(&["a"]);
        let (looks, other) = match side {
            "prefill" => (&pair.prefill, &pair.decode),
            _ => (&pair.decode, &pair.prefill),
        };
        nics(looks).lose_peers("a", RESOLVE_TRIES - 1);
        assert_success(&pair, 1, sent(&pair, 1));
        for worker in [looks, other] {
            let failures = worker.figures.get("kv_rail_failures_total", &[]);
            assert_eq!(failures.unwrap_or(0.0), 0.0, "{side}");
        }
    }
}

/// A rail has few tries, and the next offer of it has as many.
#[test]
fn a_peer_that_is_never_found_is_given_up_with_the_reason() {
    for side in ["prefill", "decode"] {
        let pair = mk_pair(&["a"]);
        let looks = match side {
            "prefill" => &pair.prefill,
            _ => &pair.decode,
        };
        nics(looks).lose_peers("a", RESOLVE_TRIES);
        let receiver = pair.receiver(1);
        pair.decode
            .wait("it is refused", || receiver.poll() == KvPoll::Failed);
        let reason = receiver.failure_reason().expect("it failed").to_string();
        assert!(reason.contains("to RTR"), "{side}: {reason}");
        assert!(reason.contains("no route to the peer"), "{side}: {reason}");
    }
}

#[test]
fn without_any_rail_the_room_fails_with_the_reason() {
    let pair = mk_pair(&["a"]);
    assert_success(&pair, 1, sent(&pair, 1));
    nics(&pair.decode).cut("a", true);
    let (sender, receiver) = sent(&pair, 2);
    pair.wait_end(&sender, &receiver);
    let reason = sender.failure_reason().expect("it failed").to_string();
    assert!(reason.contains("no rail is left"), "{reason}");
    assert!(reason.contains("IBV_WC_RETRY_EXC_ERR"), "{reason}");
}

#[test]
fn aborted_memory_comes_back_when_nothing_can_land_in_it_any_more() {
    let pair = mk_pair(&["a"]);
    assert_success(&pair, 1, sent(&pair, 1));
    let own = nics(&pair.prefill);
    own.freeze("a", true);
    let (sender, receiver) = sent(&pair, 2);
    wait_for("writes are held", || own.held("a") > 0);
    receiver.abort();
    pair.prefill
        .wait("the abort is known", || sender.poll() == KvPoll::Failed);
    // Prefill sends all it has for the first room before this.
    let (next, next_receiver) = pair.open(3, &[60], 3);
    pair.send(&next, &SRC[..1], 1, 3);
    pair.decode.wait("the next room's bytes are announced", || {
        next_receiver.poll() == KvPoll::Transferring
    });
    assert!(!receiver.released(), "a NIC still holds writes to it");
    assert!(!sender.released(), "a NIC still holds writes from it");
    own.freeze("a", false);
    pair.wait_end(&sender, &receiver);
    pair.wait_end(&next, &next_receiver);
    assert_eq!(next_receiver.poll(), KvPoll::Success);
}

#[test]
fn memory_of_a_frozen_peer_comes_back_with_the_end_of_the_session() {
    let pair = mk_pair(&["a"]);
    assert_success(&pair, 1, sent(&pair, 1));
    let own = nics(&pair.prefill);
    own.freeze("a", true);
    let (_sender, receiver) = sent(&pair, 2);
    wait_for("writes are held", || own.held("a") > 0);
    let Fixture {
        prefill, decode, ..
    } = pair;
    let before = decode.snapshot();
    let Worker { manager, nics, .. } = prefill;
    drop(manager);
    decode.wait("memory is free", || receiver.released());
    nics.expect("it has NICs").freeze("a", false);
    assert!(before == decode.snapshot(), "a write came too late");
}

#[test]
fn auto_goes_over_rdma_where_memory_is_not_shared() {
    let devices = ["a"];
    let prefill = mk_rdma(TransportChoice::Only(Transport::Rdma), &devices);
    let pair = Fixture::with(prefill, mk_rdma(TransportChoice::Auto, &devices));
    assert_success(&pair, 1, sent(&pair, 1));
    assert!(nics(&pair.decode).landed("a") > 0);
    let links: Vec<_> = pair
        .decode
        .transport_report
        .snapshot()
        .into_values()
        .collect();
    assert_eq!(links[0].transport, Transport::Rdma);
}

#[test]
fn rdma_alone_where_no_rail_carries_is_refused_with_the_reason() {
    let pair = mk_pair(&["a"]);
    nics(&pair.prefill).cut("a", true);
    let receiver = pair.receiver(1);
    pair.decode
        .wait("it is refused", || receiver.poll() == KvPoll::Failed);
    let reason = receiver.failure_reason().expect("it failed").to_string();
    assert!(
        reason.contains("decode takes [rdma]; rdma does not work"),
        "{reason}"
    );
    assert!(reason.contains("IBV_WC_RETRY_EXC_ERR"), "{reason}");
}
