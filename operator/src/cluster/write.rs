//! Carries out what a reconcile decided. A write that fails keeps no other from being tried, unless that builds on it:
//! routers build on what the namespace shares; budgets, and steps towards a size, on the sizes of both pools; a worker
//! that serves leaves only if the admissions took effect among which its successor may be.

use super::admin::Admin;
use super::apply::Writer;
use super::decide::Writes;
use super::error::ApplyError;
use super::facts::PodFacts;
use super::handover::hand_over_replicas;
use super::history::record_revision;
use super::routers::with_kept_template;
use super::scaling::write_decision;
use super::shared::{self, FormerAccount, apply_shared};
use super::sizes::PoolWrite;
use super::snapshot::Snapshot;
use super::workers::{WorkerWrite, write_worker};
use crate::controller::build::Resources;
use futures::future::join_all;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Resource, ResourceExt};
use pd_crds::PdPool;
use pd_protocol::labels;

/// How the writes went.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Each pool has its object, with the size that was decided.
    pub(crate) sized: bool,
    /// The autoscaler decided, and that was written.
    pub(crate) scaled: bool,
    /// The first write that failed.
    pub(crate) failure: Option<ApplyError>,
}

// === impl Outcome ===

impl Outcome {
    /// Notes how a write went; says whether it succeeded.
    pub(crate) fn note(&mut self, written: Result<(), ApplyError>) -> bool {
        match written {
            Ok(()) => true,
            Err(error) => {
                self.failure.get_or_insert(error);
                false
            }
        }
    }
}

pub(crate) async fn write(
    writer: &Writer<'_>,
    admin: Option<&Admin>,
    snapshot: &Snapshot<'_>,
    writes: &Writes<'_>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let index = &writer.context.index;
    let service = &snapshot.effective.resources.service;
    outcome.note(writer.apply(service, &index.services).await);
    outcome.note(apply_names(writer, snapshot).await);
    outcome.note(apply_policy(writer, snapshot).await);
    if outcome.note(apply_shared(writer).await) {
        outcome.note(apply_routers(writer, snapshot, writes).await);
    }
    outcome.note(record_revision(writer).await);
    outcome.sized = true;
    for pool in &writes.pools {
        outcome.sized &= outcome.note(write_size(writer, pool).await);
    }
    if outcome.sized {
        outcome.note(apply_budgets(writer, &writes.budgets).await);
    }
    // A pool whose size is not written has no surplus, and lacks nothing; what leaves already goes on.
    let is_due = |write: &&WorkerWrite| outcome.sized || !write.follows_size();
    let steps = writes.steps.iter().filter(is_due);
    let to_workers: Vec<&WorkerWrite> = writes.upkeep.iter().chain(steps).collect();
    write_workers(writer, admin, &to_workers, &mut outcome).await;
    if let Some(decision) = &writes.scaling {
        outcome.scaled = outcome.note(write_decision(writer, decision).await);
    }
    outcome
}

/// Writes to workers, each whether or not another failed; but none that serves leaves after an admission that took no
/// effect, where its successor may be the one that does not serve yet. The next reconcile decides again.
pub(crate) async fn write_workers(
    writer: &Writer<'_>,
    admin: Option<&Admin>,
    writes: &[&WorkerWrite<'_>],
    outcome: &mut Outcome,
) {
    let (drains, rest): (Vec<&WorkerWrite>, Vec<&WorkerWrite>) = writes
        .iter()
        .copied()
        .partition(|write| matches!(write, WorkerWrite::Drain(_)));
    let mut unadmitted = Vec::new();
    for write in rest {
        if let WorkerWrite::Leave(facts, held_back_by) = write
            && held_back_by.holds_back(facts.component, &unadmitted)
        {
            continue;
        }
        let written = write_worker(writer, admin, write).await;
        if let (WorkerWrite::Admit { facts, .. }, Ok(false) | Err(_)) = (write, &written) {
            unadmitted.push(facts.component);
        }
        outcome.note(written.map(drop));
    }
    // At the same time: one that does not answer must not make the others wait.
    let drains = drains
        .iter()
        .map(|drain| write_worker(writer, admin, drain));
    for written in join_all(drains).await {
        outcome.note(written.map(drop));
    }
}

/// The Service by which replicas meet that span nodes, where there are any.
async fn apply_names(writer: &Writer<'_>, snapshot: &Snapshot<'_>) -> Result<(), ApplyError> {
    let Resources { service, names, .. } = &snapshot.effective.resources;
    let known = &writer.context.index.services;
    if let Some(names) = names {
        writer.apply(names, known).await?;
    }
    let wanted = [Some(service), names.as_ref()];
    let wanted = wanted.map(|service| service.map(ResourceExt::name_any));
    let is_wanted = |name: &str| wanted.iter().flatten().any(|wanted| wanted == name);
    writer.remove_rest(known, is_wanted).await
}

/// The policy of workers that do not know their peers, as long as there are any, or are to be.
async fn apply_policy(writer: &Writer<'_>, snapshot: &Snapshot<'_>) -> Result<(), ApplyError> {
    let known = &writer.context.index.policies;
    let has_own = |facts: &PodFacts| facts.pod.labels().contains_key(labels::OWN_POLICY);
    let is_wanted =
        !writer.deployment.spec.authenticates_peers() || snapshot.pods.iter().any(has_own);
    let policy = &snapshot.effective.resources.policy;
    let policy = policy.as_ref().filter(|_| is_wanted);
    if let Some(policy) = policy {
        writer.apply(policy, known).await?;
    }
    let name = policy.map(ResourceExt::name_any);
    writer
        .remove_rest(known, |other| name.as_deref() == Some(other))
        .await
}

/// The routers, which run under the account that the namespace shares.
async fn apply_routers(
    writer: &Writer<'_>,
    snapshot: &Snapshot<'_>,
    writes: &Writes<'_>,
) -> Result<(), ApplyError> {
    let index = &writer.context.index;
    let routers = with_kept_template(writer, writes.routers.clone()).await?;
    let account = FormerAccount::of(writer.deployment, &routers, &snapshot.pods);
    if account == FormerAccount::Kept {
        shared::keep_former_account(writer).await?;
    }
    hand_over_replicas(writer, &routers).await?;
    writer.apply(&routers, &index.deployments).await?;
    shared::remove_former(writer, account).await
}

async fn write_size(writer: &Writer<'_>, write: &PoolWrite) -> Result<(), ApplyError> {
    match write {
        PoolWrite::Create(pool) => {
            let known = &writer.context.index.pools;
            if writer.create(&**pool, known, |pool| pool).await? {
                return Ok(());
            }
            // Its size may be another one than was decided for one that is to be made.
            Err(ApplyError::NotWatched {
                kind: PdPool::kind(&()).into_owned(),
                name: pool.name_any(),
                deployment: writer.deployment.name_any(),
            })
        }
        PoolWrite::Scale {
            name,
            replicas,
            event,
        } => {
            writer.scale(name, *replicas).await?;
            if let Some(event) = event {
                writer.publish(event).await;
            }
            Ok(())
        }
    }
}

async fn apply_budgets(
    writer: &Writer<'_>,
    budgets: &[PodDisruptionBudget],
) -> Result<(), ApplyError> {
    let known = &writer.context.index.budgets;
    for budget in budgets {
        writer.apply(budget, known).await?;
    }
    let is_wanted = |name: &str| budgets.iter().any(|budget| budget.name_any() == name);
    writer.remove_rest(known, is_wanted).await
}

#[cfg(test)]
mod tests;
