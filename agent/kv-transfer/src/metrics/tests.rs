//! Facts about whose series are whose.

use super::*;
use crate::tests::figures::Figures;
use pd_protocol::control::transfer_info::TransferMode;

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
        peer.planned(TransferMode::Shm, 4, 2);
        peer.wrote(TransferMode::Tcp, 100, 3);
        peer.abort_sent();
    }
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
    peer.leave();
    peer.moved(TransferMode::Tcp, 1);
    peer.planned(TransferMode::Tcp, 1, 1);
    peer.abort_answered();
    assert!(figures.values_of("peer").is_empty());
}

#[test]
fn a_peer_that_registers_anew_begins_at_zero_and_outlives_its_earlier_self() {
    let (metrics, figures) = mk();
    let bytes = || figures.get("kv_transfer_peer_bytes_total", &[("peer", "one")]);
    let before = metrics.enter("one");
    before.moved(TransferMode::Tcp, 5);
    let after = metrics.enter("one");
    assert_eq!(bytes(), None);
    after.moved(TransferMode::Tcp, 1);
    before.moved(TransferMode::Tcp, 5);
    before.leave();
    drop(before);
    assert_eq!(bytes(), Some(1.0));
}

#[test]
fn peers_beyond_the_bound_share_a_name() {
    let (metrics, figures) = mk();
    let peers: Vec<_> = (0..PEERS_MAX + 2)
        .map(|i| metrics.enter(&format!("peer {i}")))
        .collect();
    for peer in &peers {
        peer.moved(TransferMode::Rdma, 1);
    }
    assert_eq!(figures.values_of("peer").len(), PEERS_MAX + 1);
    let other = [("peer", OTHER)];
    let get = |name| figures.get(name, &other);
    assert_eq!(get("kv_transfer_peer_bytes_total"), Some(2.0));
    // Whoever leaves makes room for a name.
    drop(peers);
    let _late = metrics.enter("late");
    let (late, other) = ("late".to_owned(), OTHER.to_owned());
    assert_eq!(figures.values_of("peer"), [late, other].into());
}

#[test]
fn names_that_a_peer_gives_are_cut() {
    let (metrics, figures) = mk();
    let _peer = metrics.enter(&"\u{e9}".repeat(1000));
    let longest = |label| {
        let names = figures.values_of(label).into_iter();
        names.map(|name| name.chars().count()).max()
    };
    assert_eq!(longest("peer"), Some(PEER_CHARS_MAX));
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
