//! Carries out what a reconcile decided. A write that fails keeps no other from being tried, unless that builds on it.

use super::admin::Admin;
use super::apply::Writer;
use super::error::ApplyError;
use super::handover::hand_over_replicas;
use super::history::record_revision;
use super::routers::with_kept_template;
use super::scaling::write_decision;
use super::shared::{self, FormerAccount, apply_shared};
use super::sizes::PoolWrite;
use super::snapshot::Snapshot;
use super::sync::Sync;
use super::workers::{WorkerWrite, write_worker};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;

/// How the writes went.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Each pool has its object, with the size that was decided.
    pub(crate) sized: bool,
    /// The autoscaler's decision could not be written.
    pub(crate) unscaled: bool,
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
    sync: &Sync<'_>,
) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.note(apply_routers(writer, snapshot, sync).await);
    outcome.sized = outcome.note(write_sizes(writer, &sync.pools).await);
    if outcome.sized {
        outcome.note(apply_budgets(writer, &sync.budgets).await);
    }
    // A pool whose size is not known has no surplus, and lacks nothing.
    let steps = if outcome.sized { &sync.steps[..] } else { &[] };
    write_workers(writer, admin, &sync.upkeep, &mut outcome).await;
    write_workers(writer, admin, steps, &mut outcome).await;
    if let Some(decision) = &sync.scaling
        && outcome.sized
    {
        outcome.unscaled = !outcome.note(write_decision(writer, decision).await);
    }
    outcome
}

/// Writes to workers, each whether or not another failed.
pub(crate) async fn write_workers(
    writer: &Writer<'_>,
    admin: Option<&Admin>,
    writes: &[WorkerWrite<'_>],
    outcome: &mut Outcome,
) {
    for write in writes {
        outcome.note(write_worker(writer, admin, write).await);
    }
}

/// What the namespace shares, Service, routers, and the record of the revision.
async fn apply_routers(
    writer: &Writer<'_>,
    snapshot: &Snapshot<'_>,
    sync: &Sync<'_>,
) -> Result<(), ApplyError> {
    let index = &writer.context.index;
    apply_shared(writer).await?;
    let service = &snapshot.course.resources.service;
    writer.apply(service, &index.services).await?;
    let routers = with_kept_template(writer, sync.routers.clone()).await?;
    let account = FormerAccount::of(writer.deployment, &routers, &snapshot.pods);
    if account == FormerAccount::Kept {
        shared::keep_former_account(writer).await?;
    }
    hand_over_replicas(writer, &routers).await?;
    writer.apply(&routers, &index.deployments).await?;
    shared::remove_former(writer, account).await?;
    record_revision(writer).await
}

async fn write_sizes(writer: &Writer<'_>, pools: &[PoolWrite]) -> Result<(), ApplyError> {
    for write in pools {
        match write {
            PoolWrite::Create(pool) => {
                let known = &writer.context.index.pools;
                writer.create(&**pool, known, |pool| pool).await?;
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
            }
        }
    }
    Ok(())
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
