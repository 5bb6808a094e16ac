//! What both sides say and when memory comes back when something goes wrong.

use super::bootstrap::mk_bootstrap;
use super::fixture::{Fixture, HOST, Worker, dst_items, mk_layout, mk_transfer, next_boot};
use crate::FailureLayer;
use crate::config::{BootstrapAddr, TransferConfig, TransportChoice};
use pd_protocol::KvPoll;
use pd_protocol::Role;
use pd_protocol::Transport;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub(super) const ALL: [TransportChoice; 3] = [
    TransportChoice::Only(Transport::Tcp),
    TransportChoice::Only(Transport::Shm),
    TransportChoice::Only(Transport::Rdma),
];

#[test]
fn an_abort_by_decode_before_prefill_comes_fails_prefill() {
    let pair = Fixture::new(TransportChoice::Only(Transport::Tcp));
    let receiver = pair.receiver(7);
    pair.decode.wait("prefill is known", || {
        receiver.poll() == KvPoll::WaitingForInput
    });
    receiver.init(&[1], 0, &dst_items());
    receiver.abort();
    assert!(receiver.released());
    // A second room shows that the abort of the first was handled: messages keep their order.
    let (other, _other_receiver) = pair.open(8, &[2], 1);
    assert_eq!(other.poll(), KvPoll::WaitingForInput);
    let sender = pair.sender(7);
    pair.prefill
        .wait("the abort is known", || sender.poll() == KvPoll::Failed);
    let reason = sender.failure_reason().unwrap();
    assert_eq!(reason.layer, FailureLayer::Peer);
    assert!(reason.message.contains("gave room 7 up"), "{reason}");
}

#[test]
fn an_abort_by_decode_mid_transfer_ends_both_sides() {
    for transport in ALL {
        let pair = Fixture::new(transport);
        let (sender, receiver) = pair.open(7, &[1, 2], 0);
        sender.init(2, 0);
        sender.send(&[5], None);
        pair.decode.wait("the first chunk comes", || {
            receiver.poll() == KvPoll::Transferring
        });
        receiver.abort();
        pair.wait_end(&sender, &receiver);
        assert_eq!(
            receiver.failure_reason().unwrap().layer,
            FailureLayer::Application
        );
        assert_eq!(sender.failure_reason().unwrap().layer, FailureLayer::Peer);
        let before = pair.decode.snapshot();
        sender.send(&[6], None);
        // Another room over the same connections: what could follow has followed.
        let (other, other_receiver) = pair.open(8, &[40], 1);
        pair.send(&other, &[9], 1, 1);
        pair.wait_end(&other, &other_receiver);
        assert_eq!(other_receiver.poll(), KvPoll::Success);
        let page = |snapshot: &[Vec<u8>], page: usize| {
            let len = snapshot[0].len() / 64;
            snapshot[0][page * len..(page + 1) * len].to_vec()
        };
        assert_eq!(page(&before, 2), page(&pair.decode.snapshot(), 2));
    }
}

#[test]
fn an_abort_by_prefill_fails_decode_with_its_reason() {
    for transport in ALL {
        let pair = Fixture::new(transport);
        let (sender, receiver) = pair.open(7, &[1, 2], 0);
        sender.init(2, 0);
        sender.send(&[5], None);
        sender.abort();
        pair.wait_end(&sender, &receiver);
        let reason = receiver.failure_reason().unwrap();
        assert_eq!(reason.layer, FailureLayer::Peer);
        // By a report, or by a pull that found its lease gone.
        let seen = ["was aborted by its request", "gave room 7 up"];
        let known = seen.iter().any(|text| reason.message.contains(text));
        assert!(known, "{reason}");
    }
}

/// The sender's first change of state comes from the control task; all of a manager's tasks are spawned alike.
#[test]
fn a_panic_of_the_control_task_fails_the_manager_and_every_room() {
    let pair = Fixture::new(TransportChoice::Only(Transport::Tcp));
    let (open, _open_receiver) = pair.open(6, &[3], 1);
    let failure = pair.prefill.manager.failure();
    assert_eq!(failure.reason(), None);
    pair.prefill.panics.store(true, Ordering::Release);
    let sender = pair.sender(7);
    let receiver = pair.receiver(7);
    receiver.init(&[1, 2], 0, &dst_items());
    let why = "the control task of the KV transfer panicked: planted";
    pair.prefill.wait("all rooms fail", || {
        [&open, &sender]
            .iter()
            .all(|sender| sender.poll() == KvPoll::Failed)
    });
    assert_eq!(failure.reason().as_deref(), Some(why));
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let reason = runtime.unwrap().block_on(pair.prefill.manager.failed());
    assert_eq!(&*reason, why);
    let late = pair.sender(8);
    for failed in [&open, &late] {
        let reason = failed.failure_reason().unwrap();
        assert_eq!(
            (reason.layer, &*reason.message),
            (FailureLayer::Device, why)
        );
    }
    assert!(late.released());
    assert_eq!(pair.decode.manager.failure().reason(), None);
}

#[test]
fn a_panic_on_decode_fails_its_rooms() {
    let pair = Fixture::new(TransportChoice::Only(Transport::Tcp));
    pair.decode.panics.store(true, Ordering::Release);
    let receiver = pair.receiver(7);
    pair.decode
        .wait("the room fails", || receiver.poll() == KvPoll::Failed);
    let reason = pair.decode.manager.failure().reason().unwrap();
    assert!(reason.contains("room task"), "{reason}");
    let late = pair.receiver(8);
    assert_eq!(late.failure_reason().unwrap().message, *reason);
}

#[test]
fn a_dropped_sender_fails_decode() {
    let pair = Fixture::new(TransportChoice::Only(Transport::Tcp));
    let (sender, receiver) = pair.open(7, &[1], 0);
    drop(sender);
    pair.decode
        .wait("decode fails", || receiver.poll() == KvPoll::Failed);
}

#[test]
fn a_dropped_receiver_gives_its_memory_back() {
    let pair = Fixture::new(TransportChoice::Only(Transport::Tcp));
    let (sender, receiver) = pair.open(7, &[1], 0);
    drop(receiver);
    pair.prefill
        .wait("prefill fails", || sender.poll() == KvPoll::Failed);
    assert_eq!(pair.decode.manager.take_reclaimed(), []);
}

#[test]
fn different_page_counts_name_both() {
    let pair = Fixture::new(TransportChoice::Only(Transport::Tcp));
    let (sender, receiver) = pair.open(7, &[1, 2], 0);
    sender.init(3, 0);
    pair.wait_end(&sender, &receiver);
    let reason = receiver.failure_reason().unwrap().to_string();
    assert!(
        reason.contains("offers 2 pages, but the request has 3"),
        "{reason}"
    );
}

#[test]
fn more_pages_than_promised_fail_the_room() {
    let pair = Fixture::new(TransportChoice::Only(Transport::Tcp));
    let (sender, receiver) = pair.open(7, &[1], 0);
    sender.init(1, 0);
    sender.send(&[1, 2], None);
    pair.wait_end(&sender, &receiver);
    assert_eq!(
        sender.failure_reason().unwrap().layer,
        FailureLayer::Application
    );
}

#[test]
fn a_prefill_that_dies_fails_decodes_rooms_at_once() {
    for transport in ALL {
        let pair = Fixture::new(transport);
        let (sender, receiver) = pair.open(7, &[1, 2], 0);
        sender.init(2, 0);
        sender.send(&[5], None);
        let Fixture {
            prefill, decode, ..
        } = pair;
        drop(prefill);
        decode.wait("decode fails and its memory is free", || {
            receiver.released()
        });
        // Seen by the connection, long before the heartbeat would miss it.
        let reason = receiver.failure_reason().unwrap().to_string();
        assert!(!reason.contains("silent"), "{reason}");
    }
}

#[test]
fn a_decode_that_dies_fails_prefills_rooms_at_once() {
    for transport in ALL {
        let pair = Fixture::new(transport);
        let (sender, receiver) = pair.open(7, &[1, 2], 0);
        sender.init(2, 0);
        sender.send(&[5], None);
        let Fixture {
            prefill, decode, ..
        } = pair;
        drop(decode);
        prefill.wait("prefill fails and its memory is free", || sender.released());
        assert_eq!(sender.poll(), KvPoll::Failed);
        drop(receiver);
    }
}

#[test]
fn a_prefill_that_comes_back_with_another_identity_serves_new_rooms() {
    let pair = Fixture::new(TransportChoice::Only(Transport::Tcp));
    let (sender, receiver) = pair.open(7, &[1, 2], 0);
    sender.init(2, 0);
    sender.send(&[5], None);
    pair.decode
        .wait("bytes come", || receiver.poll() == KvPoll::Transferring);
    let Fixture {
        prefill,
        decode,
        bootstrap,
    } = pair;
    let port = bootstrap.addr.port;
    drop((prefill, bootstrap));
    decode.wait("the old room fails", || receiver.poll() == KvPoll::Failed);
    drop(sender);

    let boot_id = next_boot();
    let bootstrap = mk_bootstrap(port, &boot_id);
    let addr = Some(bootstrap.addr.clone());
    let prefill = Worker::start(
        Role::Prefill,
        &boot_id,
        addr,
        &mk_layout(),
        mk_transfer(TransportChoice::Only(Transport::Tcp)),
    );
    prefill.fill(2);
    let pair = Fixture {
        prefill,
        decode,
        bootstrap,
    };
    let (sender, receiver) = pair.open(8, &[3], 1);
    pair.send(&sender, &[6], 1, 1);
    pair.wait_end(&sender, &receiver);
    pair.assert_arrived(8, &[6], &[3], 1);
}

#[test]
fn a_decode_that_comes_back_is_another_session() {
    let pair = Fixture::new(TransportChoice::Only(Transport::Shm));
    let (sender, receiver) = pair.open(7, &[1], 0);
    let Fixture {
        prefill,
        decode,
        bootstrap,
    } = pair;
    drop(decode);
    prefill.wait("the old room fails", || sender.poll() == KvPoll::Failed);
    drop(receiver);
    let decode = Worker::start(
        Role::Decode,
        &next_boot(),
        None,
        &mk_layout(),
        mk_transfer(TransportChoice::Only(Transport::Shm)),
    );
    let pair = Fixture {
        prefill,
        decode,
        bootstrap,
    };
    let (sender, receiver) = pair.open(8, &[3], 1);
    pair.send(&sender, &[6], 1, 1);
    pair.wait_end(&sender, &receiver);
    pair.assert_arrived(8, &[6], &[3], 1);
}

#[test]
fn layouts_that_do_not_fit_are_refused_with_both_values() {
    let boot_id = next_boot();
    let bootstrap = mk_bootstrap(0, &boot_id);
    let addr = Some(bootstrap.addr.clone());
    let transfer = mk_transfer(TransportChoice::Only(Transport::Tcp));
    let prefill = Worker::start(
        Role::Prefill,
        &boot_id,
        addr,
        &mk_layout(),
        transfer.clone(),
    );
    let mut layout = mk_layout();
    layout.page_size = 32;
    let decode = Worker::start(Role::Decode, &next_boot(), None, &layout, transfer.clone());
    let receiver = decode.receiver(&bootstrap.addr, 7);
    decode.wait("page sizes are compared", || {
        receiver.poll() == KvPoll::Failed
    });
    let reason = receiver.failure_reason().unwrap().to_string();
    assert!(
        reason.contains("page_size differs: prefill has 16, decode has 32"),
        "{reason}"
    );

    layout = mk_layout();
    layout.groups[0].head_dim = 4;
    let decode = Worker::start(Role::Decode, &next_boot(), None, &layout, transfer);
    let receiver = decode.receiver(&bootstrap.addr, 7);
    decode.wait("groups are compared", || receiver.poll() == KvPoll::Failed);
    let reason = receiver.failure_reason().unwrap().to_string();
    assert!(
        reason.contains("head_dim differs: prefill has 8, decode has 4"),
        "{reason}"
    );
    drop(prefill);
}

#[test]
fn each_stage_has_its_bound() {
    let short = |transport| TransferConfig {
        bootstrap_timeout: Duration::from_millis(200),
        waiting_timeout: Duration::from_millis(200),
        transfer_timeout: Duration::from_millis(200),
        ..mk_transfer(transport)
    };
    let pair = Fixture::with(
        short(TransportChoice::Only(Transport::Tcp)),
        short(TransportChoice::Only(Transport::Tcp)),
    );
    let fails = |reason: Option<crate::FailureReason>, text: &str| {
        let reason = reason.unwrap().to_string();
        assert!(reason.contains(text), "{reason}");
    };
    let sender = pair.sender(1);
    pair.prefill
        .wait("no TransferInfo", || sender.poll() == KvPoll::Failed);
    fails(sender.failure_reason(), "sent no TransferInfo");

    let receiver = pair.receiver(2);
    receiver.init(&[1], 0, &dst_items());
    pair.decode
        .wait("no first byte", || receiver.poll() == KvPoll::Failed);
    fails(receiver.failure_reason(), "sent nothing");

    let (sender, receiver) = pair.open(3, &[1, 2], 0);
    sender.init(2, 0);
    sender.send(&[1], None);
    pair.decode
        .wait("no last byte", || receiver.poll() == KvPoll::Failed);
    fails(receiver.failure_reason(), "did not end");
    pair.wait_end(&sender, &receiver);
}

#[test]
fn a_prefill_that_never_was_is_named() {
    let decode = Worker::start(
        Role::Decode,
        &next_boot(),
        None,
        &mk_layout(),
        mk_transfer(TransportChoice::Only(Transport::Tcp)),
    );
    let free = std::net::TcpListener::bind((HOST, 0)).unwrap();
    let addr = BootstrapAddr {
        host: HOST.to_string(),
        port: free.local_addr().unwrap().port(),
    };
    drop(free);
    let receiver = decode.receiver(&addr, 7);
    decode.wait("the connection is refused", || {
        receiver.poll() == KvPoll::Failed
    });
    let reason = receiver.failure_reason().unwrap();
    assert_eq!(reason.layer, FailureLayer::Network);
    assert!(reason.message.contains(&addr.to_string()), "{reason}");
}

#[test]
fn injected_failures_end_with_a_reason_and_return_all_memory() {
    for transport in ALL {
        let flaky = |seed| TransferConfig {
            test_failure_prob: 0.3,
            test_failure_seed: seed,
            ..mk_transfer(transport)
        };
        let pair = Fixture::with(flaky(1), flaky(2));
        let mut failed = 0;
        for room in 1..=100 {
            let (sender, receiver) = (pair.sender(room), pair.receiver(room));
            receiver.init(&[1, 2], 0, &dst_items());
            pair.decode.wait("decode is past its first stages", || {
                receiver.poll() != KvPoll::Bootstrapping
            });
            if receiver.poll() == KvPoll::Failed {
                // Decode may not have met prefill yet; the router ends the other leg.
                sender.abort();
            }
            pair.prefill.wait("prefill starts or fails", || {
                sender.poll() != KvPoll::Bootstrapping
            });
            pair.send(&sender, &[3, 4], 1, 0);
            pair.wait_end(&sender, &receiver);
            assert_eq!(sender.poll(), receiver.poll());
            if receiver.poll() == KvPoll::Failed {
                let reasons = (
                    sender.failure_reason().unwrap(),
                    receiver.failure_reason().unwrap(),
                );
                let text = format!("{} {}", reasons.0, reasons.1);
                assert!(text.contains("on purpose"), "{text}");
                failed += 1;
            } else {
                pair.assert_arrived(room, &[3, 4], &[1, 2], 0);
            }
        }
        assert!((20..80).contains(&failed), "{failed} of 100 rooms failed");
    }
}
