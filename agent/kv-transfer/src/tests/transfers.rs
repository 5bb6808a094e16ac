//! What arrives when nothing goes wrong.

use super::bootstrap::mk_bootstrap;
use super::fixture::{Fixture, Worker, dst_items, mk_layout, mk_room, mk_transfer, next_boot};
use crate::config::{BootstrapAddr, TransportChoice};
use crate::{FailureLayer, LastChunk, OpenError, ReceiverRequest, SenderRequest};
use pd_protocol::KvPoll;
use pd_protocol::Role;
use pd_protocol::Transport;
use pd_protocol::ports::FAKE_BOOTSTRAP_HOST;

fn every_byte_arrives(transport: TransportChoice, chunk: usize) {
    every_byte_arrives_in(&Fixture::new(transport), chunk);
}

pub(super) fn every_byte_arrives_in(pair: &Fixture, chunk: usize) {
    let src: Vec<u32> = vec![9, 10, 11, 2, 40, 41, 5, 63, 0];
    let dst: Vec<u32> = vec![30, 31, 32, 33, 7, 8, 50, 1, 62];
    let (sender, receiver) = pair.open(7, &dst, 4);
    pair.send(&sender, &src, chunk, 2);
    pair.wait_end(&sender, &receiver);
    assert_eq!(receiver.failure_reason(), None);
    assert_eq!(
        (sender.poll(), receiver.poll()),
        (KvPoll::Success, KvPoll::Success)
    );
    pair.assert_arrived(7, &src, &dst, 4);
    let bytes = receiver.report().unwrap().bytes;
    let reports = sender.take_reports();
    assert_eq!(
        reports.iter().map(|report| report.bytes).sum::<u64>(),
        bytes
    );
    // Streams overtake each other, so the last chunk need not be reported last.
    assert_eq!(reports.iter().filter(|report| report.last).count(), 1);
}

#[test]
fn every_byte_arrives_over_tcp() {
    every_byte_arrives(TransportChoice::Only(Transport::Tcp), 100);
}

#[test]
fn every_byte_arrives_over_tcp_in_chunks() {
    every_byte_arrives(TransportChoice::Only(Transport::Tcp), 2);
}

#[test]
fn every_byte_arrives_over_shm() {
    every_byte_arrives(TransportChoice::Only(Transport::Shm), 100);
}

#[test]
fn every_byte_arrives_over_shm_in_chunks() {
    every_byte_arrives(TransportChoice::Only(Transport::Shm), 2);
}

#[test]
fn every_byte_arrives_over_rdma() {
    every_byte_arrives(TransportChoice::Only(Transport::Rdma), 100);
}

#[test]
fn every_byte_arrives_over_rdma_in_chunks() {
    every_byte_arrives(TransportChoice::Only(Transport::Rdma), 2);
}

#[test]
fn auto_shares_memory_on_one_host() {
    let pair = Fixture::with(
        mk_transfer(TransportChoice::Only(Transport::Shm)),
        mk_transfer(TransportChoice::Auto),
    );
    let (sender, receiver) = pair.open(7, &[1, 2], 0);
    pair.send(&sender, &[3, 4], 1, 0);
    pair.wait_end(&sender, &receiver);
    assert_eq!(receiver.poll(), KvPoll::Success);
}

#[test]
fn auto_goes_over_tcp_where_memory_is_not_offered() {
    let pair = Fixture::with(
        mk_transfer(TransportChoice::Only(Transport::Tcp)),
        mk_transfer(TransportChoice::Auto),
    );
    let (sender, receiver) = pair.open(7, &[1, 2], 0);
    pair.send(&sender, &[3, 4], 1, 0);
    pair.wait_end(&sender, &receiver);
    assert_eq!(receiver.poll(), KvPoll::Success);
}

/// The bounds of the stages are minutes here, so a room that fails has not waited for one.
#[test]
fn rooms_of_a_pair_without_a_common_transport_fail_at_once() {
    for (prefill, decode, offered, taken) in [
        (
            TransportChoice::Only(Transport::Shm),
            TransportChoice::Only(Transport::Tcp),
            "[shm]",
            "[tcp]",
        ),
        (
            TransportChoice::Only(Transport::Tcp),
            TransportChoice::Only(Transport::Shm),
            "[tcp]",
            "[shm]",
        ),
    ] {
        let pair = Fixture::with(mk_transfer(prefill), mk_transfer(decode));
        for room in [1, 2] {
            let receiver = pair.receiver(room);
            pair.decode.wait("transports are compared", || {
                receiver.poll() == KvPoll::Failed
            });
            let reason = receiver.failure_reason().unwrap();
            assert_eq!(reason.layer, FailureLayer::Peer);
            for said in [offered, taken, "--disaggregation-transfer-backend"] {
                assert!(reason.message.contains(said), "{reason}");
            }
        }
    }
}

#[test]
fn decode_may_come_long_before_prefill() {
    let pair = Fixture::new(TransportChoice::Only(Transport::Tcp));
    let receiver = pair.receiver(7);
    pair.decode.wait("prefill is known", || {
        receiver.poll() == KvPoll::WaitingForInput
    });
    receiver.init(&[1], 0, &dst_items());
    let sender = pair.sender(7);
    pair.prefill
        .wait("both met", || sender.poll() == KvPoll::WaitingForInput);
    pair.send(&sender, &[5], 1, 0);
    pair.wait_end(&sender, &receiver);
    assert_eq!(receiver.poll(), KvPoll::Success);
}

#[test]
fn many_rooms_at_once_do_not_mix() {
    for transport in [
        TransportChoice::Only(Transport::Tcp),
        TransportChoice::Only(Transport::Shm),
    ] {
        let pair = Fixture::new(transport);
        let ends: Vec<_> = (1..=8u64)
            .map(|room| {
                let page = u32::try_from(room).unwrap() * 4;
                let (sender, receiver) = pair.open(room, &[page, page + 1], page / 4 - 1);
                (room, page, sender, receiver)
            })
            .collect();
        for (_, page, sender, _) in &ends {
            pair.send(sender, &[page + 2, page + 3], 1, page / 4 - 1);
        }
        for (room, page, sender, receiver) in &ends {
            pair.wait_end(sender, receiver);
            assert_eq!(receiver.poll(), KvPoll::Success);
            let row = page / 4 - 1;
            let src = [page + 2, page + 3];
            for (s, d) in src.iter().zip([*page, page + 1]) {
                assert_eq!(pair.prefill.page(0, *s), pair.decode.page(0, d));
            }
            assert!(
                pair.decode
                    .kv
                    .metadata
                    .read_row(row, mk_room(*room))
                    .is_ok()
            );
        }
    }
}

#[test]
fn a_room_in_use_is_not_opened_twice_and_not_harmed() {
    let pair = Fixture::new(TransportChoice::Only(Transport::Tcp));
    let (sender, receiver) = pair.open(7, &[1], 0);
    let request = SenderRequest {
        room: mk_room(7),
        fake: false,
    };
    let again = pair.prefill.manager.sender(request.clone()).err();
    assert_eq!(again, Some(OpenError::DuplicateRoom(mk_room(7))));
    let request_receiver = ReceiverRequest {
        bootstrap_addr: pair.bootstrap.addr.clone(),
        room: mk_room(7),
        prefill_dp_rank: None,
    };
    assert!(pair.decode.manager.receiver(request_receiver).is_err());
    pair.send(&sender, &[5], 1, 0);
    pair.wait_end(&sender, &receiver);
    assert_eq!(receiver.poll(), KvPoll::Success);
    drop(sender);
    let again = pair.prefill.manager.sender(request).err();
    assert_eq!(again, Some(OpenError::DuplicateRoom(mk_room(7))));
}

#[test]
fn a_worker_opens_only_its_own_end() {
    let pair = Fixture::new(TransportChoice::Only(Transport::Tcp));
    let request = SenderRequest {
        room: mk_room(7),
        fake: false,
    };
    let error = pair.decode.manager.sender(request).err().unwrap();
    assert_eq!(error.to_string(), "a decode worker opens no sender");
}

#[test]
fn fake_rooms_end_without_a_peer() {
    let bootstrap = mk_bootstrap(0, "fake");
    let addr = Some(bootstrap.addr.clone());
    let (layout, boot) = (mk_layout(), next_boot());
    let transfer = mk_transfer(TransportChoice::Auto);
    let prefill = Worker::start(Role::Prefill, &boot, addr, &layout, transfer.clone());
    let decode = Worker::start(Role::Decode, "decode", None, &layout, transfer);
    for _ in 0..2 {
        let request = SenderRequest {
            room: mk_room(7),
            fake: true,
        };
        let sender = prefill.manager.sender(request).unwrap();
        sender.init(2, 0);
        sender.send(&[1], None);
        assert_eq!(sender.poll(), KvPoll::Transferring);
        let last = LastChunk {
            state_indices: dst_items(),
        };
        sender.send(&[2], Some(last));
        assert_eq!(sender.poll(), KvPoll::Success);
        assert!(sender.released());

        let fake = BootstrapAddr {
            host: FAKE_BOOTSTRAP_HOST.to_owned(),
            port: 8998,
        };
        let receiver = decode.receiver(&fake, 7);
        assert_eq!(receiver.poll(), KvPoll::WaitingForInput);
        receiver.init(&[1, 2], 3, &dst_items());
        assert_eq!(receiver.poll(), KvPoll::Success);
        assert!(receiver.released());
        assert!(decode.kv.metadata.read_row(3, mk_room(7)).is_ok());
    }
}
