//! What a reconcile writes on a cluster: a function of a [`Snapshot`], of what was observed, and of what the autoscaler
//! remembers. Steps and scaling are decided as on a single machine, by [`decide_steps`].

use super::gangs::{self, Released};
use super::sizes::{PoolWrite, decide_budgets, decide_sizes};
use super::snapshot::Snapshot;
use super::workers::{WorkerWrite, steps, upkeep};
use crate::controller::autoscale::Decision;
use crate::controller::build::worker_key;
use crate::controller::plan::{Desired, Observed};
use crate::decide::{Decided, decide_steps};
use crate::scaler::Scaler;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use pd_protocol::labels;

/// What is decided, in the order in which it is written. The rest follows from the spec alone: the Service, what the
/// namespace shares and the record of the revision; and the report from how the writes went.
pub(crate) struct Writes<'a> {
    pub(crate) routers: Deployment,
    pub(crate) pools: Vec<PoolWrite>,
    pub(crate) budgets: Vec<PodDisruptionBudget>,
    /// Gates, labels and followers, at any size.
    pub(crate) upkeep: Vec<WorkerWrite<'a>>,
    /// Towards what is desired.
    pub(crate) steps: Vec<WorkerWrite<'a>>,
    pub(crate) scaling: Option<Decision>,
    /// To be remembered: that a gang gave back its nodes.
    pub(crate) released: Option<Released>,
    /// Of each pool, once `pools` is written.
    pub(crate) desired: Vec<Desired>,
}

pub(crate) fn decide_writes<'a>(
    snapshot: &'a Snapshot<'_>,
    observed: &Observed,
    scaler: Option<&mut Scaler>,
) -> Writes<'a> {
    let (desired, pools) = decide_sizes(snapshot);
    let Decided {
        steps: actions,
        scaling,
    } = decide_steps(snapshot.spec(), &desired, observed, scaler);
    let mut steps = steps(&actions, snapshot, observed, &desired);
    let released = gangs::to_release(snapshot);
    steps.extend(released.map(|(facts, why)| WorkerWrite::Release(facts, why)));
    Writes {
        routers: routers(snapshot),
        budgets: decide_budgets(snapshot, &desired),
        upkeep: upkeep(snapshot, observed),
        released: gangs::remembered(snapshot),
        steps,
        pools,
        scaling,
        desired,
    }
}

/// The routers' Deployment. Those that hold another token are replaced. While workers run that ask for a key, routers hold
/// it, also where the spec names another engine by now.
fn routers(snapshot: &Snapshot<'_>) -> Deployment {
    let mut routers = snapshot.effective.resources.router.clone();
    if let (Some(spec), Some(since)) = (&mut routers.spec, snapshot.token_since) {
        let metadata = spec.template.metadata.get_or_insert_default();
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(labels::TOKEN_SINCE.to_owned(), since.to_string());
    }
    let deployment = snapshot.deployment();
    let mut pods = snapshot.pods.iter();
    if pods.any(|facts| facts.pod.annotations().contains_key(labels::ASKS_FOR_KEY)) {
        worker_key::give_key(&mut routers, deployment);
    }
    routers
}

#[cfg(test)]
mod tests;
