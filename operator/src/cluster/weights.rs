//! The place in a reconcile of workers that change their weights while they run.

use super::admin::Admin;
use super::error::bounded;
use super::facts::PodFacts;
use super::observe::POLL_INTERVAL;
use super::snapshot::Snapshot;
use crate::controller::build::component::Component;
use crate::controller::build::model;
use crate::weights::{Outcome, Process, Processes, Progress, follow};
use kube::ResourceExt;
use std::time::Duration;

/// How far it is after this reconcile.
pub(crate) struct Weights(Outcome);

/// Brings the workers that serve one step closer to the weights of the spec; nothing where it names none.
pub(crate) async fn follow_weights(
    snapshot: &Snapshot<'_>,
    admin: Option<&Admin>,
) -> Option<Weights> {
    let wanted = model::checkpoint(snapshot.spec())?;
    let seconds = u64::try_from(snapshot.spec().drain.timeout_seconds).unwrap_or(0);
    let limit = Duration::from_secs(seconds);
    let outcome = follow(admin?.client(), &processes(snapshot), &wanted, limit).await;
    if let Some(error) = &outcome.failure {
        let pdd = snapshot.deployment().name_any();
        tracing::warn!(pdd, %error, "a step towards new weights failed");
    }
    Some(Weights(outcome))
}

/// Routers that are ready, and workers of the spec's revision that serve and stay.
fn processes(snapshot: &Snapshot<'_>) -> Processes {
    let mut processes = Processes::default();
    let serves = |facts: &&PodFacts| facts.ready() && !facts.leaves();
    for facts in snapshot.pods.iter().filter(serves) {
        let Some(admin_url) = facts.admin_url("") else {
            continue;
        };
        let process = Process {
            name: facts.pod.name_any(),
            admin_url,
        };
        match (facts.component, facts.component.worker_role()) {
            (Component::Router, _) => processes.routers.push(process),
            (Component::Prefill | Component::Decode, role) => {
                let resources = &snapshot.effective.resources;
                let is_wanted = resources.is_of_revision(facts.component, &facts.revision());
                let role = role.filter(|_| is_wanted && facts.takes_admin_calls());
                processes.workers.extend(role.map(|role| (role, process)));
            }
        }
    }
    processes
}

// === impl Weights ===

impl Weights {
    /// When to look again; nothing at rest, for what changes the weights changes the spec, or a pod.
    pub(crate) fn timer(&self) -> Option<Duration> {
        match self.0.progress {
            Progress::Served(_) => None,
            Progress::UnderWay(_) | Progress::Refused(_) => Some(POLL_INTERVAL),
        }
    }

    /// What the status says of it.
    pub(crate) fn said(&self) -> Progress {
        match &self.0.progress {
            Progress::Served(said) => Progress::Served(bounded(said)),
            Progress::UnderWay(said) => Progress::UnderWay(bounded(said)),
            Progress::Refused(said) => Progress::Refused(bounded(said)),
        }
    }
}
