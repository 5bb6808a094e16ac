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
