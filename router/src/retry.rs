//! How often a failed attempt is repeated, and the backoff before each repetition.

use pd_protocol::Backoff;

#[derive(Clone, Debug)]
pub(crate) struct RetryConfig {
    /// Attempts after the first.
    pub(crate) retries_max: u32,
    pub(crate) backoff: Backoff,
}

/// Whether another worker may answer what one refused with `status`: overload, a failing server
/// or a lost upstream. What the client did wrong is wrong everywhere.
pub(crate) fn is_retriable(status: http::StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

#[cfg(test)]
mod tests;
