//! Limits on what the router accepts and how long it works on it.

use crate::queue::QueueConfig;
use clap::Args;
use std::time::Duration;

#[derive(Clone, Debug, Args)]
pub struct LimitArgs {
    /// Requests in flight at most; more wait in the queue. -1: no bound.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    pub max_concurrent_requests: i64,
    /// Requests that may wait for a place; one more is refused with 429.
    #[arg(long, default_value_t = 100)]
    pub queue_size: usize,
    #[arg(long, default_value_t = 60)]
    pub queue_timeout_secs: u64,
    /// Largest request body in bytes; a larger one is refused with 413.
    #[arg(long, default_value_t = 32 << 20)]
    pub max_payload_size: usize,
    /// From a request's arrival to the last byte of its answer.
    #[arg(long, default_value_t = 1800)]
    pub request_timeout_secs: u64,
    /// After SIGTERM, how long new requests are still taken, until load balancers have learnt that
    /// this router leaves.
    #[arg(long, default_value_t = 0)]
    pub shutdown_delay_secs: u64,
    /// After that, how long answers in flight may take to finish.
    #[arg(long, alias = "shutdown-grace-period", default_value_t = 180)]
    pub shutdown_grace_period_secs: u64,
}

// === impl LimitArgs ===

impl LimitArgs {
    pub fn queue(&self) -> QueueConfig {
        QueueConfig {
            concurrent_max: usize::try_from(self.max_concurrent_requests).ok(),
            waiting_max: self.queue_size,
            wait_max: Duration::from_secs(self.queue_timeout_secs),
        }
    }

    pub fn request_timeout(&self) -> Duration {
        Duration::from_secs(self.request_timeout_secs)
    }

    pub fn shutdown_delay(&self) -> Duration {
        Duration::from_secs(self.shutdown_delay_secs)
    }

    pub fn shutdown_grace(&self) -> Duration {
        Duration::from_secs(self.shutdown_grace_period_secs)
    }
}
