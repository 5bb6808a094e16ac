//! Waits at the end of a connection for its last bytes to arrive.

use pd_protocol::sockets::{POLL_INTERVAL, POLLS, PROC_NET_TCP, is_delivered};
use tokio::time::sleep;

/// Waits until all bytes written to a port's connections have been acknowledged; returns whether
/// they were.
pub(crate) async fn delivered(port: u16) -> bool {
    for _ in 0..POLLS {
        if is_delivered(tables(), port) {
            return true;
        }
        sleep(POLL_INTERVAL).await;
    }
    false
}

/// If the kernel has no table, there is no wait.
fn tables() -> impl Iterator<Item = String> {
    PROC_NET_TCP.into_iter().flat_map(std::fs::read_to_string)
}

#[cfg(test)]
mod tests {
    //! Checked against the kernel's own table.

    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn what_a_peer_has_not_read_yet_is_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut peer = TcpStream::connect(address).await.unwrap();
        let (mut answer, _) = listener.accept().await.unwrap();
        // As much as the kernel takes, which is more than the peer's buffer holds.
        let bytes = vec![7; 1 << 20];
        while let Ok(Ok(_)) = tokio::time::timeout(POLL_INTERVAL, answer.write(&bytes)).await {}
        drop(answer);
        assert!(!is_delivered(tables(), address.port()));
        let reading = tokio::spawn(async move {
            let mut read = Vec::new();
            peer.read_to_end(&mut read).await.unwrap();
            // Kept open until after the check.
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
        while let Ok(Ok(_)) = tokio::time::timeout(POLL_INTERVAL, answer.write(&bytes)).await {}
        drop(answer);
        assert!(!delivered(address.port()).await);
        drop(peer);
    }
}
