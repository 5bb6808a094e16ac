//! Facts about rooms that are small enough for the thread that sends them.

use super::fixture::{Fixture, mk_transfer};
use crate::config::{TransferConfig, TransportChoice};
use pd_protocol::{KvPoll, Transport};
use std::sync::mpsc;
use tokio::runtime::{Builder, Runtime};

/// Keeps the only thread of a runtime from its tasks for as long as it lives.
struct Pause(#[expect(dead_code, reason = "its drop lets the thread go on")] mpsc::Sender<()>);

impl Pause {
    fn new(runtime: &Runtime) -> Self {
        let ((paused_tx, paused_rx), (resume_tx, resume_rx)) = (mpsc::channel(), mpsc::channel());
        runtime.spawn(async move {
            paused_tx.send(()).unwrap();
            let resumed: Result<(), _> = resume_rx.recv();
            assert!(resumed.is_err());
        });
        paused_rx.recv().unwrap();
        Self(resume_tx)
    }
}

fn a_small_room_needs_no_thread_of_prefill(transport: Transport) {
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let prefill = TransferConfig {
        runtime: Some(runtime.handle().clone()),
        ..mk_transfer(TransportChoice::Only(transport))
    };
    let entered = runtime.enter();
    let pair = Fixture::with(prefill, mk_transfer(TransportChoice::Only(transport)));
    drop(entered);
    // Its connections are open once a room has gone over them.
    let (sender, receiver) = pair.open(1, &[5], 0);
    pair.send(&sender, &[4], 1, 0);
    pair.wait_end(&sender, &receiver);
    let (sender, receiver) = pair.open(2, &[30, 7], 1);
    let pause = Pause::new(&runtime);
    pair.send(&sender, &[9, 2], 2, 1);
    pair.decode
        .wait("the room is there", || receiver.poll().is_terminal());
    assert_eq!(sender.poll(), KvPoll::Transferring, "nothing was read");
    drop(pause);
    pair.wait_end(&sender, &receiver);
    assert_eq!(sender.poll(), KvPoll::Success);
    pair.assert_arrived(2, &[9, 2], &[30, 7], 1);
    drop(pair);
}

#[test]
fn a_small_room_over_tcp_needs_no_thread_of_prefill() {
    a_small_room_needs_no_thread_of_prefill(Transport::Tcp);
}

#[test]
fn a_small_room_over_shm_needs_no_thread_of_prefill() {
    a_small_room_needs_no_thread_of_prefill(Transport::Shm);
}
