//! Why a worker gave no complete answer.

use std::io;

/// Why a worker gave no complete answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("its answer is larger than {0} bytes")]
    TooLarge(usize),
}

// === impl ClientError ===

impl ClientError {
    pub(super) fn broken(error: &io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}
