//! Facts about whose series are whose.

use super::*;
use crate::tests::figures::Figures;
use pd_protocol::Transport;
use std::time::Duration;

fn mk() -> (TransferMetrics, Figures) {
    let metrics = TransferMetrics::default();
    let figures = Figures::of(&metrics);
    (metrics, figures)
}

#[test]
fn a_peer_takes_all_of_its_series_along() {
    let (metrics, figures) = mk();
    let (one, two) = (metrics.enter("one"), metrics.enter("two"));
    for peer in [&one, &two] {
        peer.planned(Transport::Shm, 4, 2);
        peer.wrote(Transport::Tcp, 100, 3);
        peer.abort_sent();
    }
    let mut rail = one.written_rail("a", "b");
    rail.in_flight(7);
    rail.completed(5, Duration::from_micros(3));
    assert_eq!(figures.get("kv_transfer_in_flight_bytes", &[]), Some(7.0));
    one.leave();
    assert_eq!(figures.values_of("peer"), ["two".to_owned()].into());
    assert_eq!(figures.get("kv_transfer_page_parts_total", &[]), Some(4.0));
    drop(two);
    assert!(figures.values_of("peer").is_empty());
}

#[test]
fn what_counts_on_after_its_peer_has_left_makes_no_series() {
    let (metrics, figures) = mk();
    let peer = metrics.enter("one");
    let mut old = peer.written_rail("a", "b");
    peer.leave();
    peer.moved(Transport::Tcp, 1);
    peer.planned(Transport::Tcp, 1, 1);
    peer.abort_answered();
    let late = peer.written_rail("c", "d");
    for rail in [&old, &late] {
        rail.show(RailState::Up);
        rail.completed(1, Duration::ZERO);
        rail.posted_again(1);
    }
    old.in_flight(1);
    assert!(figures.values_of("peer").is_empty());
}

#[test]
fn a_peer_that_registers_again_begins_at_zero_and_outlives_its_earlier_session() {
    let (metrics, figures) = mk();
    let bytes = || figures.get("kv_transfer_peer_bytes_total", &[("peer", "one")]);
    let before = metrics.enter("one");
    before.moved(Transport::Tcp, 5);
    let after = metrics.enter("one");
    assert_eq!(bytes(), None);
    after.moved(Transport::Tcp, 1);
    before.moved(Transport::Tcp, 5);
    before.leave();
    drop(before);
    assert_eq!(bytes(), Some(1.0));
}

#[test]
fn peers_beyond_the_bound_share_a_name_and_no_rails() {
    let (metrics, figures) = mk();
    let peers: Vec<_> = (0..PEERS_MAX + 2)
        .map(|i| metrics.enter(&format!("peer {i}")))
        .collect();
    for peer in &peers {
        peer.moved(Transport::Rdma, 1);
        let mut rail = peer.written_rail("a", "b");
        rail.in_flight(10);
    }
    assert_eq!(figures.values_of("peer").len(), PEERS_MAX + 1);
    let other = [("peer", OTHER)];
    let get = |name| figures.get(name, &other);
    assert_eq!(get("kv_transfer_peer_bytes_total"), Some(2.0));
    assert_eq!(get("kv_rail_state"), None);
    assert_eq!(
        get("kv_transfer_in_flight_bytes"),
        Some(0.0),
        "none is left"
    );
    // A peer that leaves frees its name.
    drop(peers);
    let _late = metrics.enter("late");
    let (late, other) = ("late".to_owned(), OTHER.to_owned());
    assert_eq!(figures.values_of("peer"), [late, other].into());
}

#[test]
fn rails_of_one_nic_to_one_peer_add_up_and_end_one_by_one() {
    let (metrics, figures) = mk();
    let peer = metrics.enter("one");
    let mut rails = ["b", "c"].map(|other| peer.written_rail("a", other));
    for rail in &mut rails {
        rail.show(RailState::Up);
        rail.in_flight(3);
        rail.in_flight(5);
    }
    let in_flight = || figures.get("kv_transfer_in_flight_bytes", &[("nic", "a")]);
    let states = || figures.get("kv_rail_state", &[("peer", "one")]);
    assert_eq!((in_flight(), states()), (Some(10.0), Some(4.0)));
    let [first, _second] = rails;
    drop(first);
    assert_eq!((in_flight(), states()), (Some(5.0), Some(2.0)));
}

#[test]
fn names_that_a_peer_gives_are_cut() {
    let (metrics, figures) = mk();
    let peer = metrics.enter(&"p".repeat(1000));
    let _rail = peer.rail("a", &"\u{e9}".repeat(1000));
    let longest = |label| {
        let names = figures.values_of(label).into_iter();
        names.map(|name| name.chars().count()).max()
    };
    assert_eq!(longest("peer"), Some(PEER_CHARS_MAX));
    assert_eq!(longest("peer_nic"), Some(NIC_CHARS_MAX));
}

#[test]
fn failures_are_shown_before_the_first() {
    let (metrics, figures) = mk();
    let labels = [("stage", "transferring"), ("layer", "peer")];
    let failed = || figures.get("kv_rooms_failed_total", &labels);
    assert_eq!(failed(), Some(0.0));
    metrics.room_failed(KvPoll::Transferring, FailureLayer::Peer);
    assert_eq!(failed(), Some(1.0));
}
