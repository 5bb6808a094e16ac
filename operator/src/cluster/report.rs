//! Writes what a reconcile has to say: the statuses of a deployment and of its pools, and Events.
//!
//! A status is the dearest write there is: the apiserver validates the whole object for each. So
//! statuses are written on a change only, and while things move, in steps.

use super::apply::{Writer, merge_params};
use super::children::Child;
use super::error::{ApplyError, failed};
use super::status;
use super::version::resource_version;
use super::written_statuses::WrittenStatuses;
use crate::controller::build::Resources;
use crate::controller::build::component::Component;
use kube::api::Patch;
use kube::runtime::events::{Event, EventType};
use kube::{Resource, ResourceExt};
use pd_crds::status::RevisionStatus;
use pd_crds::{PdDeployment, PdDeploymentStatus, PdPool, PdPoolStatus};
use pd_protocol::labels;
use serde::Serialize;
use serde_json::json;
use std::time::{Duration, Instant};

/// What a reconcile has to say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Report {
    pub(crate) status: PdDeploymentStatus,
    /// By the pool's name; pools that are not known to exist are left out.
    pub(crate) pools: Vec<(String, PdPoolStatus)>,
}

// === impl Report ===

impl Report {
    pub(crate) fn without_pools(status: PdDeploymentStatus) -> Self {
        Self {
            status,
            pools: Vec::new(),
        }
    }
}

/// What is news of a status for people, a handful at most: a trouble that stays is not repeated, and
/// that what has just begun is not ready yet is no news.
fn transitions(before: Option<&PdDeploymentStatus>, after: &PdDeploymentStatus) -> Vec<Event> {
    let find = |status: &PdDeploymentStatus, name: &str| {
        let mut conditions = status.conditions.iter();
        conditions.find(|is| is.type_ == name).cloned()
    };
    let mut events = Vec::new();
    let was = before.and_then(|before| find(before, "Ready"));
    if let Some(is) = find(after, "Ready") {
        let holds = is.status == "True";
        let is_news = match &was {
            Some(was) => was.status != is.status || (!holds && was.reason != is.reason),
            None => holds || status::is_trouble(&is.reason),
        };
        let reason = if holds { "Ready" } else { &is.reason };
        events.extend(is_news.then(|| event(holds, reason, is.message.clone())));
    }
    let Some(before) = before else {
        return events;
    };
    let refused = |status| find(status, "SpecValid").filter(|is| is.status == "False");
    if let (None, Some(is)) = (refused(before), refused(after))
        && after.revision != RevisionStatus::default()
    {
        events.push(event(false, "SpecRefused", is.message));
    }
    let (was, is) = (&before.revision, &after.revision);
    if was.update != is.update && !was.update.is_empty() {
        let note = format!("from revision {} to {}", is.current, is.update);
        events.push(event(true, "RolloutStarted", note));
    }
    if was.current != was.update && is.current == is.update {
        let note = format!("all workers are of revision {}", is.current);
        events.push(event(true, "RolloutFinished", note));
    }
    events
}

fn event(is_normal: bool, reason: &str, note: String) -> Event {
    Event {
        type_: if is_normal {
            EventType::Normal
        } else {
            EventType::Warning
        },
        reason: reason.to_owned(),
        note: Some(note),
        action: "Reconcile".to_owned(),
        secondary: None,
    }
}

/// Selects a pod for each replica: of one that spans nodes its leader, and none that leaves. An HPA
/// takes what it counts there for the pool's size.
fn replicas_selector(deployment: &PdDeployment, component: Component) -> String {
    let mut labels = component.selector_labels(deployment);
    labels.insert(labels::NODE_RANK.to_owned(), "0".to_owned());
    let equal = labels.iter().map(|(name, value)| format!("{name}={value}"));
    let stays = format!("!{}", labels::LEAVING);
    equal.chain([stays]).collect::<Vec<_>>().join(",")
}

// === impl Writer ===

impl Writer<'_> {
    /// What there is to say of the pools, where it is news.
    pub(crate) fn pool_reports(
        &self,
        resources: &Resources,
        status: &PdDeploymentStatus,
    ) -> Vec<(String, PdPoolStatus)> {
        let pools = [
            (&resources.prefill, &status.pools.prefill),
            (&resources.decode, &status.pools.decode),
        ];
        let reports = pools.into_iter().filter_map(|(pool, counted)| {
            let name = pool.object(self.deployment).name_any();
            let stored = self.context.pools.find(&self.key(), &name)?;
            let selector = replicas_selector(self.deployment, pool.role.into());
            let status = status::of_pool(counted, selector, stored.metadata.generation);
            let is_news = self.statuses(|written| written.is_news(&stored, &status));
            is_news.then_some((name, status))
        });
        reports.collect()
    }

    /// Writes a report once things have settled; until then, says how long to wait.
    pub(crate) async fn report_settled(
        &self,
        report: Report,
    ) -> Result<Option<Duration>, ApplyError> {
        let is_news =
            self.deployment.status.as_ref() != Some(&report.status) || !report.pools.is_empty();
        if is_news && let Some(left) = self.statuses(|written| written.settles(Instant::now())) {
            return Ok(Some(left));
        }
        self.report(report).await?;
        Ok(None)
    }

    /// Writes what is news of a report.
    pub(crate) async fn report(&self, report: Report) -> Result<(), ApplyError> {
        let Report { status, pools } = report;
        for (name, status) in pools {
            let patched = self.patch_status::<PdPool>(&name, &status).await?;
            let entry = (resource_version(patched.meta()), status);
            self.statuses(|written| written.pools.insert(name, entry));
        }
        self.context
            .metrics
            .deployments
            .record(self.deployment, &status);
        let before = self.deployment.status.as_ref();
        if before != Some(&status) {
            let name = self.deployment.name_any();
            let patched = self.patch_status::<PdDeployment>(&name, &status).await?;
            self.publish_transition(before, &status).await;
            let entry = (resource_version(patched.meta()), status);
            self.statuses(|written| written.deployment = Some(entry));
        }
        self.statuses(|written| written.unsettled = None);
        Ok(())
    }

    fn statuses<T>(&self, change: impl FnOnce(&mut WrittenStatuses) -> T) -> T {
        let memories = &self.context.memories;
        memories.update(&self.uid(), |memory| change(&mut memory.statuses))
    }

    async fn patch_status<K: Child>(
        &self,
        name: &str,
        status: &impl Serialize,
    ) -> Result<K, ApplyError> {
        let patch = Patch::Merge(json!({"status": status}));
        self.api::<K>()
            .patch_status(name, &merge_params(), &patch)
            .await
            .map_err(|source| failed::<K>("write the status of", name, source))
    }

    /// Publishes what has changed since the last status, once.
    async fn publish_transition(
        &self,
        before: Option<&PdDeploymentStatus>,
        after: &PdDeploymentStatus,
    ) {
        for event in transitions(before, after) {
            self.publish(&event).await;
        }
    }

    /// Writes an Event; one that is lost is lost.
    pub(crate) async fn publish(&self, event: &Event) {
        let about = self.deployment.object_ref(&());
        if let Err(error) = self.context.recorder.publish(event, &about).await {
            tracing::warn!(%error, "cannot write an Event");
        }
    }
}

#[cfg(test)]
mod tests;
