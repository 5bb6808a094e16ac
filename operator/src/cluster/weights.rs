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
use pd_protocol::labels;
use std::time::Duration;

/// A worker may come to serve others though no watch reports it: one that restarts between two probes of the routers.
const AT_REST: Duration = Duration::from_secs(30);

/// How far it is after this reconcile.
pub(crate) struct Weights(Outcome);

/// Brings the workers that serve one step closer to the weights of the spec; nothing where it names none, or no worker serves
/// that takes some.
pub(crate) async fn follow_weights(
    snapshot: &Snapshot<'_>,
    admin: Option<&Admin>,
) -> Option<Weights> {
    let wanted = model::checkpoint(snapshot.spec()).filter(|_| !snapshot.spec().suspend)?;
    let seconds = u64::try_from(snapshot.spec().drain.timeout_seconds).unwrap_or(0);
    let limit = Duration::from_secs(seconds);
    let processes = processes(snapshot);
    if processes.workers.is_empty() {
        return None;
    }
    let outcome = follow(admin?.client(), &processes, &wanted, limit).await;
    if let Some(error) = &outcome.failure {
        let pdd = snapshot.deployment().name_any();
        tracing::warn!(pdd, %error, "a step towards new weights failed");
    }
    Some(Weights(outcome))
}

/// Routers that are ready, and workers that serve and stay, and were made for weights that are changed.
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
                let annotations = facts.pod.annotations();
                let takes = annotations.contains_key(labels::TAKES_WEIGHTS);
                let takes = takes && facts.takes_admin_calls();
                let role = role.filter(|_| takes);
                processes.workers.extend(role.map(|role| (role, process)));
            }
        }
    }
    processes
}

// === impl Weights ===

impl Weights {
    /// When to look again.
    pub(crate) fn timer(&self) -> Duration {
        match self.0.progress {
            Progress::Served(_) => AT_REST,
            Progress::UnderWay(_) | Progress::Refused(_) => POLL_INTERVAL,
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
