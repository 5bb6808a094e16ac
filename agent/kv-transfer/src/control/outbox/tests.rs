//! Facts about queues to peers, also to a ZMQ that is not ours.

use super::super::listener::tests::{mk_message, mk_tasks};
use super::*;
use pd_protocol::control::{Generation, SessionId, TransferInfo};
use pd_protocol::{BootstrapRoom, RankId, Transport};
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
