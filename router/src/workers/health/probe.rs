//! One probe of one worker: is it well, and what does it say of itself?

use super::HealthConfig;
use crate::client::ClientError;
use crate::clock::timeout;
use crate::workers::info::WorkerInfo;
use crate::workers::worker::Worker;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderValue};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use pd_protocol::Role;

/// A `/server_info` larger than this is not one.
const INFO_BYTES_MAX: usize = 1 << 20;

pub(crate) struct Prober {
    pub(crate) config: HealthConfig,
    authorization: Option<HeaderValue>,
}

/// Why a worker is not ready.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProbeError {
    #[error("{path} did not answer within {timeout_ms} ms")]
    Timeout {
        path: PathAndQuery,
        timeout_ms: u128,
    },
    #[error("{path}: {source}")]
    Unreached {
        path: PathAndQuery,
        source: ClientError,
    },
    #[error("{path} answered {status}")]
    Status {
        path: PathAndQuery,
        status: StatusCode,
    },
    #[error("/server_info is not understood: {0}")]
    Info(#[from] serde_json::Error),
    #[error(
        "it runs with --disaggregation-mode {reported} but is registered as {registered}; register it under its own role"
    )]
    Role { reported: Role, registered: Role },
}

// === impl ProbeError ===

impl ProbeError {
    /// Whether it says nothing of the worker.
    pub(super) fn is_local(&self) -> bool {
        matches!(self, Self::Unreached { source, .. } if source.is_local())
    }

    /// Whether the worker and this router are no peers.
    pub(super) fn is_of_strangers(&self) -> bool {
        matches!(self, Self::Unreached { source, .. } if source.is_of_strangers())
    }
}

// === impl Prober ===

impl Prober {
    pub(crate) fn new(config: HealthConfig, authorization: Option<HeaderValue>) -> Self {
        Self {
            config,
            authorization,
        }
    }

    pub(super) async fn probe(&self, worker: &Worker) -> Result<WorkerInfo, ProbeError> {
        self.get(worker, self.config.endpoint.clone()).await?;
        let path = PathAndQuery::from_static("/server_info");
        let info = match self.get(worker, path).await {
            Ok(body) => WorkerInfo::parse(&body)?,
            // A server without this path is still one that serves.
            Err(ProbeError::Status {
                status: StatusCode::NOT_FOUND,
                ..
            }) => WorkerInfo::default(),
            Err(error) => return Err(error),
        };
        match info.role {
            Some(reported) if reported != worker.spec.role => Err(ProbeError::Role {
                reported,
                registered: worker.spec.role,
            }),
            Some(_) | None => Ok(info),
        }
    }

    async fn get(&self, worker: &Worker, path: PathAndQuery) -> Result<Bytes, ProbeError> {
        let mut headers = HeaderMap::new();
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let client = &worker.client;
        let request = client.request(&Method::GET, &path, &headers, Bytes::new());
        let exchange = client.exchange(request, INFO_BYTES_MAX);
        let (head, body) = match timeout(self.config.timeout, exchange).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(source)) => return Err(ProbeError::Unreached { path, source }),
            Err(_) => {
                return Err(ProbeError::Timeout {
                    path,
                    timeout_ms: self.config.timeout.as_millis(),
                });
            }
        };
        if head.status.is_success() {
            Ok(body)
        } else {
            Err(ProbeError::Status {
                path,
                status: head.status,
            })
        }
    }
}
