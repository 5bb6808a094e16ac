//! Limits on what the router accepts and how long it works on it.

use crate::queue::{ConcurrencyLimit, QueueConfig};
use clap::Args;
use std::num::NonZeroUsize;
use std::time::Duration;

#[derive(Clone, Debug, Args)]
pub(crate) struct LimitArgs {
    /// Requests in flight at most; more wait in the queue. `auto`: four for each that the ready
    /// decode and unified workers run at once. -1: no bound.
    #[arg(
        long,
        default_value_t = ConcurrencyLimit::Auto,
        value_name = "NUMBER",
        allow_negative_numbers = true
    )]
    pub(crate) max_concurrent_requests: ConcurrencyLimit,
    /// Requests that may wait, for a place or for a worker; one more is refused with 429.
    #[arg(long, default_value_t = 100)]
    pub(crate) queue_size: usize,
    /// How long a request may wait before it is refused with 429.
    #[arg(long, default_value_t = 60)]
    pub(crate) queue_timeout_secs: u64,
    /// How long of that while no worker can take it, before it is refused with 503. A worker that
    /// is started again, or replaced by one that is warm, is back within these 10 s; a client that
    /// is not answered for longer should know why.
    #[arg(long, default_value_t = 10)]
    pub(crate) no_worker_timeout_secs: u64,
    /// Clients' connections at once, or as many as fit into the files that the process may open. One more closes the one
    /// that has been idle the longest; where none is idle, it is answered 503.
    #[arg(long, default_value_t = NonZeroUsize::new(16_384).expect("it is not 0"))]
    pub(crate) max_connections: NonZeroUsize,
    /// Largest request body in bytes; a larger one is refused with 413.
    #[arg(long, default_value_t = 32 << 20)]
    pub(crate) max_payload_size: usize,
    /// Largest size of all request bodies in flight together, in bytes; one more is refused with 503.
    #[arg(long, default_value_t = 256 << 20)]
    pub(crate) max_total_payload_size: usize,
    /// From a request's arrival to the last byte of its answer.
    #[arg(long, default_value_t = 1800)]
    pub(crate) request_timeout_secs: u64,
    /// After SIGTERM, how long new requests are still taken, until load balancers have learnt that
    /// this router leaves.
    #[arg(long, default_value_t = 0)]
    pub(crate) shutdown_delay_secs: u64,
    /// After that, how long answers in flight may take to finish.
    #[arg(long, alias = "shutdown-grace-period", default_value_t = 180)]
    pub(crate) shutdown_grace_period_secs: u64,
}

// === impl LimitArgs ===

impl LimitArgs {
    pub(crate) fn queue(&self) -> QueueConfig {
        QueueConfig {
            limit: self.max_concurrent_requests,
            waiting_max: self.queue_size,
            wait_max: Duration::from_secs(self.queue_timeout_secs),
            no_worker_max: Duration::from_secs(self.no_worker_timeout_secs),
        }
    }

    /// One body always fits.
    pub(crate) fn bodies_bytes_max(&self) -> usize {
        self.max_total_payload_size.max(self.max_payload_size)
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_secs(self.request_timeout_secs)
    }

    pub(crate) fn shutdown_delay(&self) -> Duration {
        Duration::from_secs(self.shutdown_delay_secs)
    }

    pub(crate) fn shutdown_grace(&self) -> Duration {
        Duration::from_secs(self.shutdown_grace_period_secs)
    }
}
