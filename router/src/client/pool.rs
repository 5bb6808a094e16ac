//! Connections to one worker that wait for their next request.

use super::connection::Connection;
use crate::clock::Instant;
use parking_lot::Mutex;
use std::time::Duration;

/// Idle connections are given up before the worker would: uvicorn, SGLang's server, closes them
/// after 5 s, and a request sent into a closing connection is lost.
const IDLE_MAX: Duration = Duration::from_secs(3);
/// Connections kept at most; more than this many at once are closed after their request.
const CONNECTIONS_MAX: usize = 1024;

/// The longest idle first.
#[derive(Debug, Default)]
pub(super) struct Pool {
    idle: Mutex<Vec<Idle>>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

// === impl Pool ===

impl Pool {
    /// The latest used connection that is still good.
    pub(super) fn take(&self, now: Instant) -> Option<Connection> {
        let mut idle = self.idle.lock();
        let expired_len = idle.partition_point(|idle| now.duration_since(idle.since) >= IDLE_MAX);
        idle.drain(..expired_len);
        loop {
            let Idle { connection, .. } = idle.pop()?;
            if connection.is_quiet() {
                return Some(connection);
            }
        }
    }

    pub(super) fn put(&self, connection: Connection, now: Instant) {
        let mut idle = self.idle.lock();
        if idle.len() < CONNECTIONS_MAX {
            idle.push(Idle {
                connection,
                since: now,
            });
        }
    }
}
