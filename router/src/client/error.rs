//! Why a worker gave no complete answer.

use super::chunked::ChunkError;
use super::head::HeadError;
use pd_identity::HandshakeError;
use rustix::io::Errno;
use std::io;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    /// The worker was not even asked.
    #[error(
        "this router can open no further socket: {0}; raise its limit of open files (ulimit -n), or lower --max-connections"
    )]
    NoSocket(#[source] io::Error),
    #[error("the connection broke: {0}")]
    Broken(#[source] Break),
    #[error("its answer is larger than {0} bytes")]
    TooLarge(usize),
    /// It is there, and says nothing to anyone: a process that is frozen.
    #[error("it answers no probe, and its answer does not go on")]
    Silent,
}

/// What broke a connection, or made it useless.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Break {
    #[error(transparent)]
    Socket(io::Error),
    /// Over TLS: closed without the notice that the worker had no more to say.
    #[error("it was cut off, as when a worker is killed")]
    CutOff,
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

impl ClientError {
    /// Why no connection was made: by the worker's doing, or for lack of something here.
    pub(super) fn of_connect(error: io::Error) -> Self {
        let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
        let errno = Errno::from_io_error(&error);
        if errno.is_some_and(|errno| lacks.contains(&errno)) {
            Self::NoSocket(error)
        } else {
            Self::Connect(error)
        }
    }

    /// Why nothing was exchanged. A worker judges the router's certificate after the handshake, so that
    /// its refusal is read in place of an answer.
    pub(super) fn of_exchange(error: io::Error) -> Self {
        match error.get_ref() {
            Some(refusal) if refusal.is::<HandshakeError>() => Self::Connect(error),
            Some(_) | None => error.into(),
        }
    }

    /// Whether the worker and this router have found that they are no peers.
    pub(crate) fn is_of_strangers(&self) -> bool {
        matches!(self, Self::Connect(error) if error.kind() == io::ErrorKind::InvalidData)
    }

    /// Whether the worker did not say anything in time, to a handshake or to a request.
    pub(crate) fn is_timeout(&self) -> bool {
        match self {
            Self::Connect(error) | Self::Broken(Break::Socket(error)) => {
                error.kind() == io::ErrorKind::TimedOut
            }
            Self::Broken(Break::Timeout) => true,
            Self::NoSocket(_) | Self::Broken(_) | Self::TooLarge(_) | Self::Silent => false,
        }
    }

    /// Whether it says nothing of the worker.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::NoSocket(_))
    }
}

impl<E: Into<Break>> From<E> for ClientError {
    fn from(error: E) -> Self {
        Self::Broken(error.into())
    }
}

impl From<io::Error> for Break {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            Self::CutOff
        } else {
            Self::Socket(error)
        }
    }
}
