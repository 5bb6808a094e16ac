//! Why a worker gave no complete answer.

use super::chunked::ChunkError;
use super::head::HeadError;
use std::io;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    #[error("the connection broke: {0}")]
    Broken(#[source] Break),
    #[error("its answer is larger than {0} bytes")]
    TooLarge(usize),
}

/// What broke a connection, or made it useless.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Break {
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Head(#[from] HeadError),
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    #[error("it was closed before an answer came")]
    BeforeAnswer,
    #[error("it was closed before the end of the answer")]
    BeforeEnd,
    #[error("no answer in time")]
    Timeout,
}

// === impl ClientError ===

impl<E: Into<Break>> From<E> for ClientError {
    fn from(error: E) -> Self {
        Self::Broken(error.into())
    }
}
