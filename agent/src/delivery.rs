//! The end of a connection after the end of its answer.

use pd_protocol::sockets::undelivered;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A lost packet comes again within a second; a peer that is gone never acknowledges.
const LIMIT: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(20);

/// Waits until peers have acknowledged what was written to connections of a port before they were
/// closed: a pod's network goes with its process, and with it what the kernel would send again. Says
/// whether they have.
pub(crate) async fn delivered(port: u16) -> bool {
    let began = Instant::now();
    while is_undelivered(port) {
        if began.elapsed() > LIMIT {
            return false;
        }
        sleep(LOOK).await;
    }
    true
}

/// Where the kernel does not say, nothing is waited for.
fn is_undelivered(port: u16) -> bool {
    ["tcp", "tcp6"].into_iter().any(|family| {
        let table = std::fs::read_to_string(format!("/proc/self/net/{family}"));
        table.is_ok_and(|table| undelivered(&table, port) > 0)
    })
}

#[cfg(test)]
mod tests {
    //! Held against the kernel's own table.

    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn what_a_peer_has_not_read_yet_is_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut peer = TcpStream::connect(address).await.unwrap();
        let (mut answer, _) = listener.accept().await.unwrap();
        // As much as the kernel takes; more than the peer's side has room for.
        let bytes = vec![7; 1 << 20];
        while let Ok(Ok(_)) = tokio::time::timeout(LOOK, answer.write(&bytes)).await {}
        drop(answer);
        assert!(is_undelivered(address.port()));
        let reading = tokio::spawn(async move {
            let mut read = Vec::new();
            peer.read_to_end(&mut read).await.unwrap();
            // Not closed before the look.
            peer
        });
        assert!(delivered(address.port()).await);
        reading.await.unwrap();
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_not_waited_for_forever() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let peer = TcpStream::connect(address).await.unwrap();
        let (mut answer, _) = listener.accept().await.unwrap();
        let bytes = vec![7; 1 << 20];
        while let Ok(Ok(_)) = tokio::time::timeout(LOOK, answer.write(&bytes)).await {}
        drop(answer);
        assert!(!delivered(address.port()).await);
        drop(peer);
    }
}
