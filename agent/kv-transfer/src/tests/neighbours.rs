//! Two processes of one host that share memory through a directory, as pods of a node do.

use super::fixture::{Fixture, Worker, mk_kv_in, mk_layout, mk_transfer, next_boot};
use super::heap_device::{Call, HeapDevice};
use super::transfers::every_byte_arrives_in;
use crate::config::{TransferConfig, TransportChoice};
use crate::transport_report::PeerTransport;
use pd_protocol::KvPoll;
use pd_protocol::Role;
use pd_protocol::Transport;
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;

fn mk_dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn mk_in(transport: TransportChoice, dir: &Path) -> TransferConfig {
    TransferConfig {
        shm_dir: Some(dir.to_owned()),
        ..mk_transfer(transport)
    }
}

fn link(pair: &Fixture) -> PeerTransport {
    let transport_report = pair.decode.transport_report.snapshot();
    transport_report
        .into_values()
        .next()
        .expect("they have met")
}

#[test]
fn neighbours_with_one_directory_share_memory() {
    let (dir, decodes) = (mk_dir(), mk_dir());
    let path = decodes.path().join("mounted-elsewhere");
    symlink(dir.path(), &path).unwrap();
    for transport in [TransportChoice::Auto, TransportChoice::Only(Transport::Shm)] {
        let pair = Fixture::with(mk_in(transport, dir.path()), mk_in(transport, &path));
        every_byte_arrives_in(&pair, 2);
        assert_eq!(link(&pair).transport, Transport::Shm);
        assert_eq!(link(&pair).fallback_reason, "");
    }
}

#[test]
fn neighbours_with_one_directory_share_a_devices_memory() {
    let dir = mk_dir();
    let device = HeapDevice::default();
    let on = |device: &HeapDevice| mk_kv_in(&mk_layout(), |len| device.allocate(len));
    let transfer = || mk_in(TransportChoice::Only(Transport::Shm), dir.path());
    let prefill = (on(&HeapDevice::default()), transfer());
    let pair = Fixture::between(prefill, (on(&device), transfer()));
    every_byte_arrives_in(&pair, 2);
    assert!(device.count(Call::CopyFrom) > 0);
    assert_eq!(device.in_flight(), 0);
}

#[test]
fn auto_takes_tcp_where_the_directory_is_not_shared_and_says_why() {
    let (dir, other) = (mk_dir(), mk_dir());
    let prefill = || mk_in(TransportChoice::Auto, dir.path());
    for (decode, why) in [
        (
            mk_in(TransportChoice::Auto, other.path()),
            "is not prefill's",
        ),
        (mk_transfer(TransportChoice::Auto), "decode has none"),
    ] {
        let pair = Fixture::with(prefill(), decode);
        every_byte_arrives_in(&pair, 2);
        let PeerTransport {
            transport,
            fallback_reason,
            ..
        } = link(&pair);
        assert_eq!(transport, Transport::Tcp);
        let is_said =
            fallback_reason.contains(why) && fallback_reason.contains("--disaggregation-shm-dir");
        assert!(is_said, "{fallback_reason}");
    }
}

#[test]
fn shm_alone_fails_where_the_directory_is_not_shared_and_says_why() {
    let (dir, other) = (mk_dir(), mk_dir());
    let pair = Fixture::with(
        mk_in(TransportChoice::Only(Transport::Shm), dir.path()),
        mk_in(TransportChoice::Only(Transport::Shm), other.path()),
    );
    let receiver = pair.receiver(7);
    pair.decode.wait("transports are compared", || {
        receiver.poll() == KvPoll::Failed
    });
    let reason = receiver.failure_reason().unwrap().to_string();
    assert!(reason.contains("is not prefill's"), "{reason}");
}

/// One without still meets one with, within a network namespace, as today.
#[test]
fn decode_with_a_directory_takes_what_a_prefill_without_offers() {
    let dir = mk_dir();
    let pair = Fixture::with(
        mk_transfer(TransportChoice::Only(Transport::Shm)),
        mk_in(TransportChoice::Only(Transport::Shm), dir.path()),
    );
    every_byte_arrives_in(&pair, 2);
    assert_eq!(link(&pair).transport, Transport::Shm);
}

#[test]
fn a_directory_that_cannot_be_used_is_refused_as_a_manager_starts() {
    let dir = mk_dir();
    let missing = dir.path().join("missing");
    let why = |role, transport| {
        let transfer = mk_in(transport, &missing);
        let started = Worker::try_start(role, &next_boot(), None, &mk_layout(), transfer);
        started.err().map(|error| error.to_string())
    };
    for role in [Role::Prefill, Role::Decode] {
        for transport in [TransportChoice::Auto, TransportChoice::Only(Transport::Shm)] {
            let message = why(role, transport).expect("it is refused");
            let flag = format!("--disaggregation-shm-dir {}", missing.display());
            assert!(message.starts_with(&flag), "{message}");
            assert!(message.contains("No such file or directory"), "{message}");
        }
        assert_eq!(
            why(role, TransportChoice::Only(Transport::Tcp)),
            None,
            "it is not needed"
        );
    }
}
