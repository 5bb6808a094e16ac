//! Writes what a reconcile has to say: the statuses of a deployment and of its pools, and Events.
//!
//! A status is the dearest write there is: the apiserver validates the whole object for each. So
//! statuses are written on a change only, and while things move, in steps.

use super::apply::Writer;
use super::error::ApplyError;
use super::models::is_other;
use super::status;
use super::version::resource_version;
use super::write::Outcome;
use super::written_statuses::WrittenStatuses;
use crate::controller::build::Resources;
use crate::controller::build::component::Component;
use kube::runtime::events::{Event, EventType};
use kube::{Resource, ResourceExt};
use pd_crds::status::RevisionStatus;
use pd_crds::{PdDeployment, PdDeploymentStatus, PdPool, PdPoolStatus};
use pd_protocol::labels;
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
    let troubles = [
        (status::PEER_KEYS_ROTATED, status::ROTATION_HELD),
        (status::STATE_SLOTS_FREE, status::OUT_OF_STATE_SLOTS),
        (status::WEIGHTS_SERVED, status::WEIGHTS_REFUSED),
    ];
    for (name, reason) in troubles {
        let trouble = |status| find(status, name).filter(|is| is.reason == reason);
        if let (None, Some(is)) = (trouble(before), trouble(after)) {
            events.push(event(false, &is.reason, is.message));
        }
    }
    let served = |status| find(status, status::WEIGHTS_SERVED).filter(|is| is.status == "True");
    if let (None, Some(is)) = (served(before), served(after)) {
        events.push(event(true, &is.reason, is.message));
    }
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

/// Writes what there is to say of a deployment that could be built; says how long to hold back the rest, while it is
/// debounced.
pub(crate) async fn report(
    writer: &Writer<'_>,
    resources: &Resources,
    status: PdDeploymentStatus,
    outcome: &mut Outcome,
) -> Option<Duration> {
    let report = Report {
        pools: pool_reports(writer, resources, &status),
        status,
    };
    let is_news =
        writer.deployment.status.as_ref() != Some(&report.status) || !report.pools.is_empty();
    // A failure is said at once, and so is a commit: a branch is resolved once.
    let before = writer.deployment.status.as_ref();
    let before = before.and_then(|before| before.model.as_ref());
    let is_urgent = outcome.failure.is_some() || is_other(before, report.status.model.as_ref());
    if !is_urgent
        && is_news
        && let Some(left) = statuses(writer, |written| written.debounce(Instant::now()))
    {
        return Some(left);
    }
    outcome.note(write_report(writer, report).await);
    None
}

/// What there is to say of the pools, where it is news.
fn pool_reports(
    writer: &Writer<'_>,
    resources: &Resources,
    status: &PdDeploymentStatus,
) -> Vec<(String, PdPoolStatus)> {
    let pools = [
        (&resources.prefill, &status.pools.prefill),
        (&resources.decode, &status.pools.decode),
    ];
    let reports = pools.into_iter().filter_map(|(pool, counted)| {
        let name = pool.object(writer.deployment).name_any();
        let stored = writer.context.index.pools.find(&writer.key(), &name)?;
        let selector = replicas_selector(writer.deployment, pool.role.into());
        let status = status::of_pool(counted, selector, stored.metadata.generation);
        let is_news = statuses(writer, |written| written.is_news(&stored, &status));
        is_news.then_some((name, status))
    });
    reports.collect()
}

/// Writes what is news of a report, at once: all of it, also after one write has failed.
pub(crate) async fn write_report(writer: &Writer<'_>, report: Report) -> Result<(), ApplyError> {
    let Report { status, pools } = report;
    let mut written = Ok(());
    for (name, status) in pools {
        written = written.and(write_pool_status(writer, name, status).await);
    }
    written.and(write_status(writer, status).await)?;
    statuses(writer, |written| written.pending_since = None);
    Ok(())
}

async fn write_pool_status(
    writer: &Writer<'_>,
    name: String,
    status: PdPoolStatus,
) -> Result<(), ApplyError> {
    let patched = writer.patch_status::<PdPool>(&name, &status).await?;
    let entry = (resource_version(patched.meta()), status);
    statuses(writer, |written| written.pools.insert(name, entry));
    Ok(())
}

async fn write_status(writer: &Writer<'_>, status: PdDeploymentStatus) -> Result<(), ApplyError> {
    let metrics = &writer.context.metrics.deployments;
    metrics.record(writer.deployment, &status);
    let before = writer.deployment.status.as_ref();
    if before != Some(&status) {
        let name = writer.deployment.name_any();
        let patched = writer.patch_status::<PdDeployment>(&name, &status).await?;
        for event in transitions(before, &status) {
            writer.publish(&event).await;
        }
        let entry = (resource_version(patched.meta()), status);
        statuses(writer, |written| written.deployment = Some(entry));
    }
    Ok(())
}

fn statuses<T>(writer: &Writer<'_>, change: impl FnOnce(&mut WrittenStatuses) -> T) -> T {
    let memories = &writer.context.memories;
    memories.update(&writer.uid(), |memory| change(&mut memory.statuses))
}

#[cfg(test)]
mod tests;
