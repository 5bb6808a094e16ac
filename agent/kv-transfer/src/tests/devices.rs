//! Facts about transfers from, to and between devices.

use super::fixture::{Fixture, mk_kv, mk_kv_in, mk_layout, mk_room, mk_transfer};
use super::heap_device::{Call, HeapDevice};
use super::transfers::every_byte_arrives_in;
use crate::config::{KvArgs, TransportChoice};
use crate::transport_report::PeerTransport;
use crate::{FailureLayer, FailureReason, KvReceiver, KvSender};
use parking_lot::Mutex;
use pd_protocol::KvPoll;
use pd_protocol::Transport;
use pd_protocol::control::SessionId;
use pd_protocol::metadata::MetadataRow;
use std::sync::Arc;

fn on_host() -> KvArgs {
    mk_kv(&mk_layout())
}

fn on(device: &HeapDevice) -> KvArgs {
    mk_kv_in(&mk_layout(), |len| device.allocate(len))
}

fn on_a_device() -> KvArgs {
    on(&HeapDevice::default())
}

fn mk_pair(transport: TransportChoice, prefill: KvArgs, decode: KvArgs) -> Fixture {
    let transfer = || mk_transfer(transport);
    Fixture::between((prefill, transfer()), (decode, transfer()))
}

/// A pair of devices; the one that is returned is decode's.
fn mk_devices(transport: TransportChoice) -> (Fixture, HeapDevice) {
    let device = HeapDevice::default();
    (mk_pair(transport, on_a_device(), on(&device)), device)
}

fn link(pair: &Fixture) -> PeerTransport {
    let transport_report = pair.decode.transport_report.snapshot();
    transport_report
        .into_values()
        .next()
        .expect("they have met")
}

/// What decode says of a pair that does not get as far as offering pages.
fn refusal(pair: &Fixture) -> FailureReason {
    let receiver = pair.receiver(7);
    pair.decode.wait("transports are compared", || {
        receiver.poll() == KvPoll::Failed
    });
    receiver.failure_reason().unwrap()
}

/// Sends a room of two pages, waits for its end, and returns why prefill and decode say it failed.
fn failures(
    pair: &Fixture,
    sender: &KvSender,
    receiver: &KvReceiver,
) -> (FailureReason, FailureReason) {
    pair.send(sender, &[3, 9], 2, 0);
    pair.wait_end(sender, receiver);
    let reasons = (sender.failure_reason(), receiver.failure_reason());
    (reasons.0.unwrap(), reasons.1.unwrap())
}

#[test]
fn every_byte_arrives_from_device_to_device() {
    for transport in [
        TransportChoice::Only(Transport::Shm),
        TransportChoice::Only(Transport::Tcp),
        TransportChoice::Auto,
    ] {
        for chunk in [2, 100] {
            let (pair, device) = mk_devices(transport);
            every_byte_arrives_in(&pair, chunk);
            let is_copied = transport != TransportChoice::Only(Transport::Tcp);
            assert_eq!(device.count(Call::CopyFrom) > 0, is_copied, "{transport:?}");
            assert_eq!(device.in_flight(), 0);
        }
    }
}

#[test]
fn every_byte_arrives_over_tcp_between_a_device_and_the_host() {
    for chunk in [2, 100] {
        let (tcp, to_host) = (TransportChoice::Only(Transport::Tcp), on_host());
        every_byte_arrives_in(&mk_pair(tcp, on_a_device(), to_host), chunk);
        every_byte_arrives_in(&mk_pair(tcp, on_host(), on_a_device()), chunk);
    }
}

#[test]
fn auto_takes_tcp_between_a_device_and_the_host_and_says_why() {
    for (pair, why) in [
        (
            mk_pair(TransportChoice::Auto, on_host(), on_a_device()),
            "device memory is not copied to from a peer's host memory",
        ),
        (
            mk_pair(TransportChoice::Auto, on_a_device(), on_host()),
            "host memory is not copied to from a peer's device memory",
        ),
    ] {
        every_byte_arrives_in(&pair, 2);
        let link = link(&pair);
        assert_eq!(link.transport, Transport::Tcp);
        assert!(
            link.fallback_reason.contains(why),
            "{}",
            link.fallback_reason
        );
    }
}

#[test]
fn shm_alone_fails_between_a_device_and_the_host_and_says_why() {
    for (prefill, decode) in [(on_host(), on_a_device()), (on_a_device(), on_host())] {
        let reason = refusal(&mk_pair(
            TransportChoice::Only(Transport::Shm),
            prefill,
            decode,
        ));
        let why = "memory is not copied to from a peer's";
        assert!(reason.message.contains(why), "{reason}");
    }
}

#[test]
fn memory_of_another_kind_than_its_neighbours_fails_the_room() {
    let device = HeapDevice::default();
    let mut decode = on(&device);
    decode.states = on_host().states;
    let pair = mk_pair(TransportChoice::Only(Transport::Shm), on_a_device(), decode);
    let (sender, receiver) = pair.open(7, &[1, 2], 0);
    let (prefill, decode) = failures(&pair, &sender, &receiver);
    let why = "host memory is not copied to from a peer's device memory";
    assert_eq!(decode.layer, FailureLayer::Peer);
    assert!(decode.message.contains(why), "{decode}");
    assert!(prefill.message.contains(why), "{prefill}");
    assert_eq!(device.in_flight(), 0);
}

#[test]
fn a_step_is_settled_once_for_all_regions() {
    let (pair, device) = mk_devices(TransportChoice::Only(Transport::Shm));
    every_byte_arrives_in(&pair, 100);
    assert!(device.count(Call::CopyFrom) > 1);
    assert_eq!(device.count(Call::Settle), 1);
}

#[test]
fn the_lease_is_looked_at_after_copies_have_ended() {
    let (pair, device) = mk_devices(TransportChoice::Only(Transport::Shm));
    let (sender, receiver) = pair.open(7, &[1, 2], 0);
    let sender = Arc::new(sender);
    let aborted = Arc::clone(&sender);
    device.on(Call::Settle, move || aborted.abort());
    let (_, decode) = failures(&pair, &sender, &receiver);
    // Seen by its lease, or reported before.
    let seen = ["gave room 7 up", "was aborted by its request"];
    assert!(
        seen.iter().any(|text| decode.message.contains(text)),
        "{decode}"
    );
}

#[test]
fn pages_are_not_released_before_copies_have_ended() {
    let (pair, device) = mk_devices(TransportChoice::Only(Transport::Shm));
    let (sender, receiver) = pair.open(7, &[1, 2], 0);
    let receiver = Arc::new(receiver);
    let aborted = Arc::clone(&receiver);
    device.on(Call::CopyFrom, move || aborted.abort());
    let settling = Arc::new(Mutex::new(None));
    let (seen, watched) = (Arc::clone(&settling), Arc::clone(&receiver));
    device.on(Call::Settle, move || {
        *seen.lock() = Some((watched.poll(), watched.released()));
    });
    failures(&pair, &sender, &receiver);
    assert_eq!(*settling.lock(), Some((KvPoll::Failed, false)));
    assert_eq!(device.in_flight(), 0);
}

#[test]
fn a_copy_that_is_refused_leaves_none_in_flight() {
    let (pair, device) = mk_devices(TransportChoice::Only(Transport::Shm));
    let (sender, receiver) = pair.open(7, &[1, 2], 0);
    device.refuse(Call::CopyFrom, 1);
    let (prefill, decode) = failures(&pair, &sender, &receiver);
    assert_eq!(device.in_flight(), 0);
    assert_eq!(decode.layer, FailureLayer::Device);
    for reason in [prefill, decode] {
        let said = "cannot copy to device memory: CopyFrom is refused on purpose";
        assert!(reason.message.contains(said), "{reason}");
    }
}

#[test]
fn copies_that_do_not_end_well_fail_both_sides() {
    let (pair, device) = mk_devices(TransportChoice::Only(Transport::Shm));
    let (sender, receiver) = pair.open(7, &[1, 2], 0);
    device.refuse(Call::Settle, 0);
    let (prefill, decode) = failures(&pair, &sender, &receiver);
    assert_eq!(decode.layer, FailureLayer::Device);
    for reason in [prefill, decode] {
        let said = "room 7: cannot copy to device memory: Settle is refused on purpose";
        assert!(reason.message.contains(said), "{reason}");
    }
}

fn session(receiver: &KvReceiver) -> SessionId {
    let state = receiver.room.state.lock();
    state.sources[0].peer.remote.session_id.clone()
}

/// The session of a room that failed carries the next one.
fn assert_goes_on(pair: &Fixture, device: &HeapDevice, failed: &KvReceiver) {
    device.recover();
    let (sender, receiver) = pair.open(8, &[20, 21], 1);
    assert_eq!(session(&receiver), session(failed));
    pair.send(&sender, &[4, 5], 1, 1);
    pair.wait_end(&sender, &receiver);
    pair.assert_arrived(8, &[4, 5], &[20, 21], 1);
}

#[test]
fn a_device_that_cannot_be_written_fails_the_room_over_tcp() {
    let (pair, device) = mk_devices(TransportChoice::Only(Transport::Tcp));
    let (sender, receiver) = pair.open(7, &[1, 2], 0);
    device.refuse(Call::Write, 1);
    let (prefill, decode) = failures(&pair, &sender, &receiver);
    assert_eq!(decode.layer, FailureLayer::Device);
    for reason in [prefill, decode] {
        let said = "room 7: cannot write device memory: Write is refused on purpose";
        assert!(reason.message.contains(said), "{reason}");
    }
    assert_goes_on(&pair, &device, &receiver);
}

#[test]
fn a_device_that_cannot_be_read_fails_the_room_over_tcp() {
    let device = HeapDevice::default();
    let pair = mk_pair(
        TransportChoice::Only(Transport::Tcp),
        on(&device),
        on_a_device(),
    );
    let (sender, receiver) = pair.open(7, &[1, 2], 0);
    device.refuse(Call::Read, 1);
    let (prefill, decode) = failures(&pair, &sender, &receiver);
    assert_eq!(prefill.layer, FailureLayer::Device);
    for reason in [prefill, decode] {
        let said = "room 7: cannot read device memory: Read is refused on purpose";
        assert!(reason.message.contains(said), "{reason}");
    }
    assert_goes_on(&pair, &device, &receiver);
}

/// As a NIC's last write does; those of these tests take no device memory.
fn written_by_nics(receiver: &KvReceiver) {
    receiver
        .side
        .rank_arrived(&receiver.room, &session(receiver));
}

#[test]
fn what_nics_wrote_is_flushed_before_success() {
    let (pair, device) = mk_devices(TransportChoice::Only(Transport::Tcp));
    let (_sender, receiver) = pair.open(7, &[1, 2], 4);
    let row = MetadataRow::new(mk_room(7), 42);
    pair.decode.kv.metadata.write_row(4, &row).unwrap();
    let receiver = Arc::new(receiver);
    let seen = Arc::new(Mutex::new(None));
    let (flushing, watched) = (Arc::clone(&seen), Arc::clone(&receiver));
    device.on(Call::Flush, move || {
        *flushing.lock() = Some((watched.poll(), watched.released()));
    });
    written_by_nics(&receiver);
    assert_eq!(*seen.lock(), Some((KvPoll::Transferring, false)));
    assert_eq!(receiver.poll(), KvPoll::Success);
    assert_eq!(device.count(Call::Flush), 1);
}

#[test]
fn a_flush_that_fails_fails_both_sides() {
    let (pair, device) = mk_devices(TransportChoice::Only(Transport::Tcp));
    let (sender, receiver) = pair.open(7, &[1, 2], 0);
    device.refuse(Call::Flush, 0);
    written_by_nics(&receiver);
    pair.wait_end(&sender, &receiver);
    let decode = receiver.failure_reason().unwrap();
    assert_eq!(decode.layer, FailureLayer::Device);
    for reason in [sender.failure_reason().unwrap(), decode] {
        let said = "room 7: Flush is refused on purpose";
        assert!(reason.message.contains(said), "{reason}");
    }
}

#[test]
fn a_device_that_no_nic_reaches_goes_over_tcp() {
    let device = HeapDevice::default();
    device.refuse(Call::DmaBuf, 0);
    let mut transfer = mk_transfer(TransportChoice::Auto);
    transfer.rdma.devices.push("a".to_owned());
    let decode = (on(&device), transfer.clone());
    let pair = Fixture::between((on_host(), transfer), decode);
    every_byte_arrives_in(&pair, 100);
    assert_eq!(link(&pair).transport, Transport::Tcp);
    assert_eq!(device.count(Call::DmaBuf), 1);
}

#[test]
fn a_handle_that_is_too_long_is_not_offered() {
    let mk_prefill = || {
        let device = HeapDevice::default();
        device.share_as(&[7; 257]);
        on(&device)
    };
    let reason = refusal(&mk_pair(
        TransportChoice::Only(Transport::Shm),
        mk_prefill(),
        on_a_device(),
    ));
    assert!(reason.message.contains("prefill offers []"), "{reason}");
    let pair = mk_pair(TransportChoice::Auto, mk_prefill(), on_a_device());
    every_byte_arrives_in(&pair, 100);
    assert_eq!(link(&pair).transport, Transport::Tcp);
}

#[test]
fn a_handle_that_the_device_does_not_open_is_refused_with_its_reason() {
    for (handle, why) in [
        (&[7; 256][..], "a handle of 256 bytes is none"),
        (&[], "a handle of 0 bytes is none"),
        (&[255; 8], "the handle names nothing"),
    ] {
        let device = HeapDevice::default();
        device.share_as(handle);
        let reason = refusal(&mk_pair(
            TransportChoice::Only(Transport::Shm),
            on(&device),
            on_a_device(),
        ));
        let said = format!("shm does not work: cannot open a peer's device memory: {why}");
        assert!(reason.message.contains(&said), "{reason}");
    }
}
