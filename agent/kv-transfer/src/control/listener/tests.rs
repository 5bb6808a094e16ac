//! Facts about the control port, also before a ZMQ that is not ours.

use super::*;
use crate::config::TransportChoice;
use crate::control::outbox::Outbox;
use crate::tests::fixture::mk_transfer;
use pd_protocol::control::{AbortAck, Generation, SessionId};
use pd_protocol::{BootstrapRoom, RankId};
use std::net::SocketAddr;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use zeromq::{PushSocket, Socket, SocketSend, ZmqMessage};

pub(crate) fn mk_tasks() -> Tasks {
    Tasks::new(tokio::runtime::Handle::current())
}

pub(crate) fn mk_message(room: u64) -> ControlMessage {
    ControlMessage::AbortAck(AbortAck {
        session_id: SessionId::new("boot", RankId::default(), 1, 7),
        room: BootstrapRoom::new(room).unwrap(),
        generation: Generation(1),
    })
}

async fn mk_listener() -> (SocketAddr, mpsc::UnboundedReceiver<ControlMessage>) {
    let (tx, rx) = mpsc::unbounded_channel();
    let transfer = mk_transfer(TransportChoice::Auto);
    let port = listen(&mk_tasks(), &transfer, move |message, _from| {
        let _ = tx.send(message);
    })
    .await
    .unwrap();
    (SocketAddr::new(transfer.host, port), rx)
}

#[tokio::test]
async fn messages_arrive_in_order() {
    let (endpoint, mut messages) = mk_listener().await;
    let outbox = Outbox::connect(&mk_tasks(), &Peers::Plain, &endpoint);
    for room in 1..=100 {
        outbox.send(&mk_message(room)).unwrap();
    }
    for room in 1..=100 {
        assert_eq!(messages.recv().await, Some(mk_message(room)));
    }
}

#[tokio::test]
async fn garbage_on_the_port_harms_no_one_else() {
    let (endpoint, mut messages) = mk_listener().await;
    let outbox = Outbox::connect(&mk_tasks(), &Peers::Plain, &endpoint);
    for garbage in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0xff; 200]] {
        let mut stranger = TcpStream::connect(endpoint).await.unwrap();
        stranger.write_all(&garbage).await.unwrap();
        stranger.write_all(&[2; 300]).await.ok();
    }
    // A true greeting, then a frame that claims 2^62 bytes.
    let mut greeting = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0];
    greeting.extend(b"NULL");
    greeting.resize(64, 0);
    greeting.push(2);
    greeting.extend((1u64 << 62).to_be_bytes());
    let mut stranger = TcpStream::connect(endpoint).await.unwrap();
    stranger.write_all(&greeting).await.unwrap();
    outbox.send(&mk_message(7)).unwrap();
    assert_eq!(messages.recv().await, Some(mk_message(7)));
}

#[tokio::test]
async fn another_zmq_pushes_and_a_message_without_guard_is_dropped() {
    let (endpoint, mut messages) = mk_listener().await;
    let mut stranger = PushSocket::new();
    stranger
        .connect(&format!("tcp://{endpoint}"))
        .await
        .unwrap();
    stranger.send("no guard".into()).await.unwrap();
    let frames = codec::encode(&mk_message(3));
    let message = ZmqMessage::try_from(frames).unwrap();
    stranger.send(message).await.unwrap();
    assert_eq!(messages.recv().await, Some(mk_message(3)));
}
