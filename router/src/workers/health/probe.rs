//! One probe of one worker: is it well, and what does it say of itself?
//!
//! SGLang's `/health` generates a token, and its `/server_info` waits for the scheduler: behind a long prompt both take as long
//! as a step. So who does not name its process is asked both until it is ready, and then only whether its server lives.
//! Source: SGLang 0.5.23, `entrypoints/http_server.py`.

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

/// What a worker says of itself is no larger.
const INFO_BYTES_MAX: usize = 1 << 20;

/// Where engines say what they are: pd-agent and SGLang; SGLang before December 2025; vLLM and others, of which only models
/// and lengths are known.
const INFO_PATHS: [&str; 3] = ["/server_info", "/get_server_info", MODELS_PATH];
const MODELS_PATH: &str = "/v1/models";
/// Answered by SGLang and vLLM without the engine.
const LIFE_PATH: &str = "/ping";

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
    #[error("{path} is not understood: {source}")]
    Info {
        path: &'static str,
        source: serde_json::Error,
    },
    #[error("it names no model in {}", INFO_PATHS.join(", "))]
    NoModel,
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

    fn is_not_found(&self) -> bool {
        let status = StatusCode::NOT_FOUND;
        matches!(self, Self::Status { status: is, .. } if *is == status)
    }

    /// Whether the worker did not say anything in time.
    pub(super) fn is_silence(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Unreached { source, .. } => source.is_timeout(),
            Self::Status { .. } | Self::Info { .. } | Self::NoModel | Self::Role { .. } => false,
        }
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

    /// `known`: what the worker has said, if it is ready.
    pub(super) async fn probe(
        &self,
        worker: &Worker,
        known: Option<&WorkerInfo>,
    ) -> Result<WorkerInfo, ProbeError> {
        if let Some(known) = known.filter(|known| known.boot_id.is_none()) {
            self.ask_for_life(worker).await?;
            return Ok(known.clone());
        }
        self.get(worker, self.config.endpoint.clone()).await?;
        let mut info = self.ask_who(worker).await?;
        if info.kv_compat.is_none() {
            info.kv_compat.clone_from(&worker.spec.given_kv_compat);
        }
        match info.role {
            Some(reported) if reported != worker.spec.role => Err(ProbeError::Role {
                reported,
                registered: worker.spec.role,
            }),
            Some(_) | None => Ok(info),
        }
    }

    async fn ask_for_life(&self, worker: &Worker) -> Result<(), ProbeError> {
        let path = PathAndQuery::from_static(LIFE_PATH);
        let answer = self.get(worker, path).await;
        if answer.as_ref().is_err_and(ProbeError::is_not_found) {
            self.get(worker, self.config.endpoint.clone()).await?;
            return Ok(());
        }
        answer.map(drop)
    }

    /// From the first path that names a model.
    async fn ask_who(&self, worker: &Worker) -> Result<WorkerInfo, ProbeError> {
        for path in INFO_PATHS {
            let body = match self.get(worker, PathAndQuery::from_static(path)).await {
                Ok(body) => body,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error),
            };
            let info = WorkerInfo::parse(&body);
            let mut info = info.map_err(|source| ProbeError::Info { path, source })?;
            if info.models.is_empty() {
                continue;
            }
            let is_known = info.boot_id.is_some() || info.context_length.is_some();
            if !is_known && path != MODELS_PATH {
                info.context_length = self.ask_for_length(worker).await;
            }
            return Ok(info);
        }
        Err(ProbeError::NoModel)
    }

    /// SGLang says it of its models alone.
    async fn ask_for_length(&self, worker: &Worker) -> Option<u32> {
        let path = PathAndQuery::from_static(MODELS_PATH);
        let models = self.get(worker, path).await.ok()?;
        WorkerInfo::parse(&models).ok()?.context_length
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
