//! Pairs with a key, with other keys, and with one on one side.

use super::fixture::{Fixture, dst_items, mk_transfer};
use super::transfers::every_byte_arrives_in;
use crate::config::{TransferConfig, TransportChoice};
use crate::failure::FailureReason;
use pd_identity::{Identity, Keyring, Peers};
use pd_protocol::{KvPoll, Transport};

pub(crate) const KEY: &str = "0123456789abcdef0123456789abcdef";
pub(crate) const OTHER_KEY: &str = "fedcba9876543210fedcba9876543210";

/// A process with `keys`, one a line.
pub(crate) fn mk_peers(keys: &str) -> Peers {
    Peers::Tls(Identity::new(
        Keyring::parse("keys", keys.as_bytes()).unwrap(),
    ))
}

pub(crate) fn mk_keyed(transport: Transport, keys: &str) -> TransferConfig {
    TransferConfig {
        peers: mk_peers(keys),
        ..mk_transfer(TransportChoice::Only(transport))
    }
}

fn mk_pair(transport: Transport, prefill: &str, decode: &str) -> Fixture {
    Fixture::with(mk_keyed(transport, prefill), mk_keyed(transport, decode))
}

/// Why a room of the pair never gets to its bytes.
fn refusal(pair: &Fixture) -> FailureReason {
    let receiver = pair.receiver(7);
    pair.decode
        .wait("the room fails", || receiver.poll() == KvPoll::Failed);
    receiver.failure_reason().unwrap()
}

#[test]
fn every_byte_arrives_among_peers_with_a_key() {
    for transport in [Transport::Shm, Transport::Tcp, Transport::Rdma] {
        let pair = mk_pair(transport, KEY, KEY);
        every_byte_arrives_in(&pair, 2);
    }
}

#[test]
fn every_byte_arrives_unencrypted_where_both_say_so() {
    let plain = || TransferConfig {
        tcp_encryption: false,
        ..mk_keyed(Transport::Tcp, KEY)
    };
    every_byte_arrives_in(&Fixture::with(plain(), plain()), 2);
}

#[test]
fn a_decode_that_wants_encryption_takes_no_plain_data() {
    let plain = TransferConfig {
        tcp_encryption: false,
        ..mk_keyed(Transport::Tcp, KEY)
    };
    let pair = Fixture::with(plain, mk_keyed(Transport::Tcp, KEY));
    let _sender = pair.sender(7);
    let receiver = pair.receiver(7);
    receiver.init(&[1, 2], 0, &dst_items());
    pair.decode
        .wait("the room fails", || receiver.poll() == KvPoll::Failed);
    // Which of the two connections that close is noticed first differs.
    let reason = receiver.failure_reason().unwrap().to_string();
    let words = ["closed", "reset"];
    assert!(words.iter().any(|word| reason.contains(word)), "{reason}");
}

#[test]
fn two_keys_are_rotated_while_rooms_move() {
    let both = [KEY, OTHER_KEY].join("\n");
    let turned = [OTHER_KEY, KEY].join("\n");
    let steps = [KEY, &both, &turned, OTHER_KEY];
    for (prefill, decode) in steps.iter().zip(&steps[1..]) {
        every_byte_arrives_in(&mk_pair(Transport::Tcp, prefill, decode), 2);
        every_byte_arrives_in(&mk_pair(Transport::Tcp, decode, prefill), 2);
    }
}

#[test]
fn a_decode_with_another_key_or_none_is_refused_in_words() {
    let reason = refusal(&mk_pair(Transport::Tcp, KEY, OTHER_KEY));
    let says = "of no key of this deployment";
    assert!(reason.to_string().contains(says), "{reason}");
    let plain = mk_transfer(TransportChoice::Only(Transport::Tcp));
    let pair = Fixture::with(mk_keyed(Transport::Tcp, KEY), plain.clone());
    let reason = refusal(&pair).to_string();
    assert!(reason.contains("bootstrap server"), "{reason}");
    let pair = Fixture::with(plain, mk_keyed(Transport::Tcp, KEY));
    let reason = refusal(&pair).to_string();
    assert!(reason.contains("give it the key file"), "{reason}");
}
