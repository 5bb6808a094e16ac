//! Carries out what was planned: starts and ends processes, talks to admin APIs.

use super::address::SubnetFull;
use super::fleet::{Departure, Fleet};
use super::observe::ADMIN_LIMIT;
use crate::controller::build::Resources;
use crate::controller::plan::Action;
use crate::http_client::CallError;
use http::Method;
use pd_crds::field::FieldErrors;
use pd_protocol::workers::{DrainStatus, WorkerSpec, WorkerStatus};
use std::net::SocketAddr;
use tokio::time::Instant;

/// Why a step failed; the next reconcile plans it again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error(transparent)]
    Address(#[from] SubnetFull),
    #[error("{address} is taken; stop what listens there, or choose another with --listen")]
    ListenTaken { address: SocketAddr },
    #[error("{pod}: {source}")]
    Launch { pod: String, source: FieldErrors },
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{0} is gone")]
    Gone(String),
}

// === impl Fleet ===

impl Fleet {
    /// Carries out one step.
    pub(crate) async fn apply(
        &mut self,
        action: &Action,
        resources: &Resources,
    ) -> Result<(), ApplyError> {
        tracing::debug!(?action, "carrying out an action");
        match action {
            Action::Create { component, ordinal } => self.create(*component, *ordinal, resources),
            Action::Leave { pod } => {
                let deadline = Instant::now() + self.drain_limit;
                let entry = self.entry_mut(pod)?;
                entry.process.finish();
                entry.leaving = Some(Departure {
                    deadline,
                    drain_asked: false,
                    drained: false,
                    terminated: false,
                });
                self.console.progress(&format!("{pod}: leaves"));
                Ok(())
            }
            Action::Register { router, pod } => self.register(router, pod).await,
            Action::Cordon { router, pod } => {
                let path = format!("/workers/{pod}/cordon");
                self.call_router(router, Method::POST, &path, None).await
            }
            Action::Deregister { router, worker } => {
                let path = format!("/workers/{worker}");
                self.call_router(router, Method::DELETE, &path, None).await
            }
            Action::Drain { pod } => self.drain(pod).await,
            Action::Terminate { pod } => {
                let entry = self.entry_mut(pod)?;
                entry.process.terminate();
                entry
                    .leaving
                    .as_mut()
                    .into_iter()
                    .for_each(|leaving| leaving.terminated = true);
                Ok(())
            }
        }
    }

    async fn register(&self, router: &str, pod: &str) -> Result<(), ApplyError> {
        let entry = self.entry(pod)?;
        let role = entry
            .component
            .worker_role()
            .ok_or_else(|| ApplyError::Gone(pod.to_owned()))?;
        let spec = WorkerSpec {
            id: pod.to_owned(),
            role,
            url: entry.url.clone(),
            bootstrap_host: None,
            bootstrap_port: entry.bootstrap_port,
            given_kv_compat: entry.given_kv_compat.clone(),
        };
        let body = serde_json::to_vec(&spec).expect("a WorkerSpec serializes to JSON");
        self.call_router(router, Method::POST, "/workers", Some(body))
            .await
    }

    fn admin_url(&self, pod: &str) -> Result<&String, ApplyError> {
        let url = self.entry(pod)?.admin_url.as_ref();
        url.ok_or_else(|| ApplyError::Gone(pod.to_owned()))
    }

    async fn call_router(
        &self,
        router: &str,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<(), ApplyError> {
        let url = format!("{}{path}", self.admin_url(router)?);
        self.client
            .call::<WorkerStatus>(method, &url, body, ADMIN_LIMIT)
            .await?;
        Ok(())
    }

    /// A worker whose admin API is broken counts as asked: it is ended next, and drains upon that.
    async fn drain(&mut self, pod: &str) -> Result<(), ApplyError> {
        let url = format!("{}/drain", self.admin_url(pod)?);
        let answer = self
            .client
            .call::<DrainStatus>(Method::POST, &url, None, ADMIN_LIMIT)
            .await;
        let entry = self.entry_mut(pod)?;
        entry
            .leaving
            .as_mut()
            .into_iter()
            .for_each(|leaving| leaving.drain_asked = true);
        answer?;
        Ok(())
    }
}
