//! Facts about queues to peers, also to a ZMQ that is not ours.

use super::super::listener::tests::{mk_message, mk_tasks};
use super::*;
use crate::admission::Admission;
use pd_protocol::control::{Generation, SessionId, TransferInfo};
use pd_protocol::{BootstrapRoom, RankId, Transport};
use std::io::Read;
use tokio::net::TcpListener;
use zeromq::{PullSocket, Socket, SocketRecv};

/// A peer that accepts and neither greets nor reads.
async fn mk_silent() -> (TcpListener, std::net::SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let endpoint = listener.local_addr().unwrap();
    (listener, endpoint)
}

fn mk_large() -> ControlMessage {
    ControlMessage::TransferInfo(TransferInfo {
        session_id: SessionId::new("boot", RankId::default(), 1, 7),
        room: BootstrapRoom::new(1).unwrap(),
        generation: Generation(1),
        page_indices: vec![7; 1 << 20],
        state_indices: Vec::new(),
        metadata_buffer_index: 0,
        is_dummy: false,
        required_dst_info_num: 1,
        decode_prefix_len: 0,
        transport: Transport::Tcp,
    })
}

#[tokio::test]
async fn another_zmq_pulls_what_is_sent() {
    let mut pull = PullSocket::new();
    let bound = pull.bind("tcp://127.0.0.1:0").await.unwrap().to_string();
    let endpoint = bound.trim_start_matches("tcp://");
    let outbox = Outbox::connect(&mk_tasks(), &Peers::Plain, &endpoint);
    for message in [mk_message(1), mk_large(), mk_message(3)] {
        outbox.send(&message).unwrap();
        let frames = pull.recv().await.unwrap().into_vec();
        assert_eq!(codec::decode(&frames).unwrap(), message);
    }
    assert_eq!(outbox.waiting_bytes.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn sending_to_a_peer_that_is_gone_never_blocks() {
    let (listener, endpoint) = mk_silent().await;
    drop(listener);
    let outbox = Outbox::connect(&mk_tasks(), &Peers::Plain, &endpoint);
    let sent = (0..2 * MESSAGES_MAX as u64).map(|i| outbox.send(&mk_message(i + 1)));
    assert!(sent.into_iter().any(|sent| sent.is_err()));
}

#[tokio::test]
async fn what_waits_for_a_peer_is_bounded_in_bytes() {
    let (_listener, endpoint) = mk_silent().await;
    let outbox = Outbox::connect(&mk_tasks(), &Peers::Plain, &endpoint);
    let sent = (0..MESSAGES_MAX).take_while(|_| outbox.send(&mk_large()).is_ok());
    assert_eq!(sent.count(), BYTES_MAX / (4 << 20) - 1);
    assert_eq!(outbox.send(&mk_large()), Err(SendError::Full));
    assert_eq!(outbox.send(&mk_message(1)), Ok(()));
}

#[tokio::test]
async fn a_peer_that_closes_ends_the_outbox() {
    let (listener, endpoint) = mk_silent().await;
    let outbox = Outbox::connect(&mk_tasks(), &Peers::Plain, &endpoint);
    drop(listener.accept().await.unwrap());
    outbox.closed().await;
    assert_eq!(outbox.send(&mk_message(1)), Err(SendError::Closed));
}

/// A peer that has greeted, whose socket is lent.
async fn mk_greeted() -> (Outbox, tokio::net::TcpStream) {
    let (listener, endpoint) = mk_silent().await;
    let outbox = Outbox::connect(&mk_tasks(), &Peers::Plain, &endpoint);
    let (mut peer, _) = listener.accept().await.unwrap();
    zmtp::greet(&mut peer, SocketType::Pull).await.unwrap();
    while !outbox.direct.lock().takes(&[]) {
        tokio::task::yield_now().await;
    }
    (outbox, peer)
}

/// The rooms of the next `count` messages.
async fn read_rooms(peer: &mut tokio::net::TcpStream, count: usize) -> Vec<BootstrapRoom> {
    let memory = Admission::new().count([127, 0, 0, 1].into()).unwrap();
    let mut rooms = Vec::new();
    for _ in 0..count {
        let next = zmtp::read_message(peer, &memory.memory).await.unwrap();
        let message = codec::decode(&next.unwrap().0).unwrap();
        let ControlMessage::AbortAck(ack) = message else {
            panic!("{message:?}");
        };
        rooms.push(ack.room);
    }
    rooms
}

fn rooms(numbers: std::ops::RangeInclusive<u64>) -> Vec<BootstrapRoom> {
    let room = |number| BootstrapRoom::new(number).unwrap();
    numbers.map(room).collect()
}

#[tokio::test]
async fn a_message_leaves_on_the_thread_that_sends_it() {
    let (outbox, peer) = mk_greeted().await;
    // From here on no task runs: this thread does not wait for one.
    let mut peer = peer.into_std().unwrap();
    outbox.send(&mk_message(1)).unwrap();
    peer.set_nonblocking(false).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut first = [0];
    peer.read_exact(&mut first).unwrap();
}

#[tokio::test]
async fn messages_keep_their_order_past_a_full_socket() {
    let (outbox, mut peer) = mk_greeted().await;
    let mut sent = 0;
    let mut send = || {
        sent += 1;
        outbox.send(&mk_message(sent)).unwrap();
    };
    while outbox.is_idle() {
        send();
    }
    (0..10).for_each(|_| send());
    let read = read_rooms(&mut peer, usize::try_from(sent).unwrap()).await;
    assert_eq!(read, rooms(1..=sent));
    while !outbox.is_idle() {
        tokio::task::yield_now().await;
    }
    outbox.send(&mk_message(sent + 1)).unwrap();
    assert_eq!(read_rooms(&mut peer, 1).await, rooms(sent + 1..=sent + 1));
}

#[tokio::test]
async fn a_held_message_goes_with_the_next() {
    let (outbox, mut peer) = mk_greeted().await;
    outbox.hold(&mk_message(1)).unwrap();
    let nothing = peer.try_read(&mut [0]).unwrap_err();
    assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    outbox.send(&mk_message(2)).unwrap();
    assert_eq!(read_rooms(&mut peer, 2).await, rooms(1..=2));
    outbox.hold(&mk_message(3)).unwrap();
    outbox.release().unwrap();
    assert_eq!(read_rooms(&mut peer, 1).await, rooms(3..=3));
}

#[tokio::test]
async fn a_held_message_stays_before_one_that_waits() {
    let (outbox, mut peer) = mk_greeted().await;
    outbox.hold(&mk_message(1)).unwrap();
    outbox.send(&mk_large()).unwrap();
    assert_eq!(read_rooms(&mut peer, 1).await, rooms(1..=1));
}
