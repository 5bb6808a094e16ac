//! How large the body of one request may be.

use crate::error::ApiError;
use http::StatusCode;

#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimit {
    pub(crate) bytes: usize,
    /// What sets it.
    pub(crate) flag: &'static str,
}

// === impl BodyLimit ===

impl BodyLimit {
    /// The smaller of what this router takes and what at least one of its workers takes, if they say.
    pub(crate) fn new(own: usize, workers: Option<u64>) -> Self {
        let workers = workers.and_then(|bytes| usize::try_from(bytes).ok());
        match workers {
            Some(bytes) if bytes < own => Self {
                bytes,
                flag: "--max-body-bytes of the workers",
            },
            Some(_) | None => Self {
                bytes: own,
                flag: "--max-payload-size",
            },
        }
    }

    pub(crate) fn exceeded(self) -> ApiError {
        let Self { bytes, flag } = self;
        let message = format!("the body is larger than {bytes} bytes ({flag})");
        ApiError::invalid(StatusCode::PAYLOAD_TOO_LARGE, message)
    }
}
