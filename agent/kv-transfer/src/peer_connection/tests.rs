//! Facts about connections that have not said their hello.

use super::*;
use crate::config::TransportChoice;
use crate::tests::fixture::mk_transfer;
use std::net::SocketAddr;
use tokio::net::TcpSocket;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Longer than anything here takes; only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

async fn connect_from(from: [u8; 4], to: SocketAddr) -> tokio::net::TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test]
async fn silent_connections_of_one_address_keep_no_other_from_its_hello() {
    let tasks = Tasks::new(tokio::runtime::Handle::current());
    let transfer = mk_transfer(TransportChoice::Auto);
    let (hellos, mut heard) = mpsc::unbounded_channel();
    let port = listen(&tasks, &transfer, move |hello, stream| {
        let _ = hellos.send((hello, stream));
    })
    .await
    .unwrap();
    let to = SocketAddr::new(transfer.host, port);

    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS_PER_ADDRESS_MAX {
        silent.push(connect_from([127, 0, 0, 2], to).await);
    }
    let mut one_more = connect_from([127, 0, 0, 2], to).await;
    let closed = timeout(HELLO_TIMEOUT / 2, one_more.read(&mut [0])).await;
    assert!(matches!(closed, Ok(Ok(0) | Err(_))), "{closed:?}");

    let said = Hello {
        kind: ConnectionKind::Liveness,
        session_id: SessionId("a session".to_owned()),
    };
    let mut other = connect_from([127, 0, 0, 3], to).await;
    other.write_all(&said.encode().unwrap()).await.unwrap();
    let (hello, _) = timeout(PATIENCE, heard.recv()).await.unwrap().unwrap();
    assert_eq!(hello, said);

    // Those that are through no longer count.
    for stream in &mut silent {
        stream.write_all(&said.encode().unwrap()).await.unwrap();
    }
    for _ in &silent {
        timeout(PATIENCE, heard.recv()).await.unwrap().unwrap();
    }
    let mut again = connect_from([127, 0, 0, 2], to).await;
    again.write_all(&said.encode().unwrap()).await.unwrap();
    timeout(PATIENCE, heard.recv()).await.unwrap().unwrap();
}
