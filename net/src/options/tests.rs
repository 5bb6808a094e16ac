//! Options as the kernel has them.

use super::{KeepAlive, set_kernel_keepalive};
use socket2::SockRef;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn a_peer_that_reads_slowly_has_not_vanished() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap());
    let stream = stream.await.unwrap();
    let socket = SockRef::from(&stream);
    let processes = KeepAlive::PROCESSES;
    set_kernel_keepalive(&stream, processes).unwrap();
    assert!(socket.keepalive().unwrap());
    assert_eq!(socket.tcp_keepalive_time().unwrap(), processes.idle);
    assert_eq!(socket.tcp_keepalive_interval().unwrap(), processes.interval);
    assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
    assert_eq!(socket.tcp_user_timeout().unwrap(), None);
    let bounded = KeepAlive {
        bounds_sent: true,
        ..processes
    };
    set_kernel_keepalive(&stream, bounded).unwrap();
    let sent = socket.tcp_user_timeout().unwrap();
    assert_eq!(sent, Some(Duration::from_secs(6)));
}
