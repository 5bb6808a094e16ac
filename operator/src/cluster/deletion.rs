//! A deployment ends: a finalizer orders it, workers drain while routers still carry their streams. Where a spec was
//! never valid, workers on their way out go on.

use super::apply::{Writer, merge_params};
use super::error::ReconcileError;
use super::error::{ApplyError, failed};
use super::facts::PodFacts;
use super::observe::observe;
use super::reconcile::AWAITING;
use super::report::Report;
use super::status::{self};
use crate::controller::build::component::Component;
use crate::controller::plan::{Desired, plan};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Patch;
use kube::runtime::controller::Action;
use pd_crds::PdDeployment;
use pd_protocol::labels;
use serde_json::json;

impl Writer<'_> {
    /// Says why a spec is not carried out that was never valid, or no longer builds; workers on their
    /// way out go on, and none is made.
    pub(super) async fn refuse(
        &self,
        refused: &str,
        now: Timestamp,
    ) -> Result<Action, ReconcileError> {
        let mut again = None;
        if self.facts().iter().any(PodFacts::leaves) {
            self.ensure_token().await?;
            let facts = self.facts();
            let admin = self.context.admin(self.deployment);
            let probes = &self.context.probes;
            let observed = observe(self.deployment, &facts, &admin, probes, now).await;
            for step in plan(&[], &observed) {
                self.step(&step, &facts, &observed, None).await?;
            }
            again = Some(AWAITING);
        }
        let status = status::refused(self.deployment, status::INVALID_SPEC, refused, now);
        self.report(Report::without_pools(status)).await?;
        Ok(again.map_or_else(Action::await_change, Action::requeue))
    }

    /// A finalizer orders deletion: workers drain while routers still carry their streams.
    pub(super) async fn ensure_finalizer(&self) -> Result<(), ApplyError> {
        let held = self.deployment.finalizers();
        if held.iter().any(|name| name == labels::FINALIZER) {
            return Ok(());
        }
        let mut finalizers = held.to_vec();
        finalizers.push(labels::FINALIZER.to_owned());
        self.write_finalizers(&finalizers).await
    }

    async fn write_finalizers(&self, finalizers: &[String]) -> Result<(), ApplyError> {
        let name = self.deployment.name_any();
        let patch = Patch::Merge(json!({"metadata": {
            "finalizers": finalizers,
            "resourceVersion": self.deployment.resource_version(),
        }}));
        self.api::<PdDeployment>()
            .patch(&name, &merge_params(), &patch)
            .await
            .map_err(|source| failed::<PdDeployment>("mark", &name, source))?;
        Ok(())
    }

    /// Drains every worker, then lets the object and with it everything it owns go.
    pub(super) async fn delete_all(&self) -> Result<Action, ReconcileError> {
        let finalizers = self.deployment.finalizers();
        if finalizers.iter().all(|name| name != labels::FINALIZER) {
            self.context.forget(&self.uid());
            return Ok(Action::await_change());
        }
        if self.facts().iter().any(|facts| facts.slot.is_some()) {
            self.ensure_token().await?;
            let facts = self.facts();
            let admin = self.context.admin(self.deployment);
            let (probes, now) = (&self.context.probes, Timestamp::now());
            let observed = observe(self.deployment, &facts, &admin, probes, now).await;
            let desired = [Component::Prefill, Component::Decode].map(Desired::nothing);
            for step in plan(&desired, &observed) {
                self.step(&step, &facts, &observed, None).await?;
            }
            return Ok(Action::requeue(AWAITING));
        }
        let rest: Vec<String> = finalizers
            .iter()
            .filter(|name| *name != labels::FINALIZER)
            .cloned()
            .collect();
        self.write_finalizers(&rest).await?;
        self.context.forget(&self.uid());
        Ok(Action::await_change())
    }
}
