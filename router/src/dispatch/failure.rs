//! One leg's failure: whose it was, whether another worker may do better, and whether it counts
//! against the worker.

use crate::client::ClientError;
use crate::error::ApiError;
use crate::retry;
use crate::workers::Worker;
use bytes::Bytes;
use http::response::Parts;
use pd_protocol::Role;
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
#[error("the {role} worker {}: {fault}", worker.id())]
pub(crate) struct LegFailure {
    pub(crate) role: Role,
    pub(crate) worker: Arc<Worker>,
    /// The other worker of the pair.
    pub(crate) peer: Option<Arc<Worker>>,
    #[source]
    pub(crate) fault: LegFault,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum LegFault {
    #[error(transparent)]
    Transport(#[from] ClientError),
    /// An answer that is no success, or a stream that begins with an error.
    #[error("answered {}", head.status)]
    Answer { head: Box<Parts>, body: Bytes },
    /// Prefill's answer does not say where decode finds the KV.
    #[error(
        "its answer has no kv_transfer_params: start vLLM with --kv-transfer-config, and its kv_role kv_producer on prefill"
    )]
    NoTransferParams,
}

// === impl LegFailure ===

impl LegFailure {
    /// Whether another worker may answer.
    pub(crate) fn is_retriable(&self) -> bool {
        self.fault.is_retriable()
    }

    /// Whether it counts against the worker.
    pub(crate) fn counts(&self) -> bool {
        self.fault.counts()
    }

    /// Whether the worker refused what the client asks.
    pub(crate) fn is_of_client(&self) -> bool {
        let is_client_error = |head: &Parts| head.status.is_client_error();
        matches!(&self.fault, LegFault::Answer { head, .. } if is_client_error(head) && !self.is_retriable())
    }

    /// Whether it says nothing of the worker.
    pub(crate) fn is_local(&self) -> bool {
        matches!(&self.fault, LegFault::Transport(error) if error.is_local())
    }
}

// === impl LegFault ===

impl LegFault {
    fn is_retriable(&self) -> bool {
        match self {
            Self::Transport(_) | Self::NoTransferParams => true,
            Self::Answer { head, .. } => retry::is_retriable(head.status),
        }
    }

    /// A worker that says that it is full, cordoned or without its peer (503), like one that
    /// refuses what the client did (4xx), works as it should.
    pub(crate) fn counts(&self) -> bool {
        match self {
            Self::Transport(error) => !error.is_local(),
            Self::NoTransferParams => true,
            Self::Answer { head, .. } => {
                head.status.is_server_error() && !matches!(head.status.as_u16(), 501 | 503)
            }
        }
    }

    /// Label of metrics.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Transport(ClientError::Connect(_)) => "connect",
            Self::Transport(ClientError::NoSocket(_)) => "no_socket",
            Self::Transport(ClientError::Broken(_)) => "broken",
            Self::Transport(ClientError::TooLarge(_)) => "too_large",
            Self::Transport(ClientError::Silent) => "silent",
            Self::Answer { head, .. } if head.status.is_client_error() => "4xx",
            Self::Answer { .. } => "5xx",
            Self::NoTransferParams => "no_transfer_params",
        }
    }
}

impl From<LegFailure> for ApiError {
    /// A worker's JSON answer goes to the client as it is; any other becomes an error of the
    /// router.
    fn from(failure: LegFailure) -> Self {
        let message = failure.to_string();
        match failure.fault {
            LegFault::Answer { head, body } if body.trim_ascii_start().starts_with(b"{") => {
                Self::of_worker(head, body)
            }
            LegFault::Answer { head, body } => {
                let said = String::from_utf8_lossy(&body);
                let message = format!("{message}: {}", said.trim());
                if head.status.is_client_error() {
                    Self::invalid(head.status, message)
                } else {
                    Self::of_server(head.status, message)
                }
            }
            LegFault::Transport(error) if error.is_local() => {
                Self::unavailable(error.to_string()).code("too_many_open_files")
            }
            LegFault::Transport(_) | LegFault::NoTransferParams => Self::bad_gateway(message),
        }
    }
}
