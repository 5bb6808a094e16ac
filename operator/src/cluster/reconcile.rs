//! One reconcile of a deployment. It assumes nothing about the one before it.
//!
//! Life of a reconcile: what may need the apiserver first, which is the finalizer, the [`EffectiveSpec`], the admin token
//! and the keys of its processes; then five phases: [`Snapshot::read`] → [`observe`] → [`decide_writes`] → [`write`] → [`report`]. `observe` asks the
//! processes, and sends one token over a new worker's KV path; `decide_writes` does no I/O; `write` changes what runs,
//! by writes to the apiserver and by asking workers to drain; `report` writes the statuses. One that is deleted, or has
//! no valid spec or no admin token, goes through [`deletion`](super::deletion) instead.

use super::admin_secret::{Ensured, ensure_token};
use super::apply::Writer;
use super::context::Context;
use super::decide::{Writes, decide_writes};
use super::deletion::{await_model, delete_all, ensure_finalizer, refuse, refuse_without_token};
use super::effective_spec::{Chosen, EffectiveSpec};
use super::error::{ApplyError, ReconcileError};
use super::facts::PodFacts;
use super::gangs;
use super::models;
use super::node_fetches::{self, NodeFetches};
use super::observe::{Clients, POLL_INTERVAL, observe};
use super::peer_keys::{Rotation, ensure_peer_keys, observe_rotation, write_rotation};
use super::queue;
use super::report::report;
use super::scaling::{INTERVAL, put_scaler, take_scaler};
use super::snapshot::Snapshot;
use super::status;
use super::status_inputs::status_inputs;
use super::weights::{Weights, follow_weights};
use super::worker_key::ensure_worker_key;
use super::write::{Outcome, write};
use crate::controller::plan::{Observed, ObservedPod};
use crate::scaler::Scaler;
use futures::future::join3;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use pd_crds::stuck::{Cause, Stuck};
use pd_crds::{PdDeployment, PdDeploymentStatus};
use pd_protocol::Backoff;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest pause after a failure; it doubles with each in a row.
const RETRY_MAX: Duration = Duration::from_secs(60);
const RETRY: Backoff = Backoff::doubling(Duration::from_secs(1), RETRY_MAX);

/// Reconciles one deployment with its spec.
pub(crate) async fn reconcile(
    deployment: Arc<PdDeployment>,
    context: Arc<Context>,
) -> Result<Action, ReconcileError> {
    let began = Instant::now();
    context.metrics.reconciling.inc();
    let deployment = renewed(deployment, &context);
    let result = Box::pin(reconcile_deployment(&deployment, &context)).await;
    context.metrics.reconciling.dec();
    let error = result.as_ref().err();
    context.metrics.reconciled(began.elapsed(), error);
    result
}

/// The deployment with its newest status.
pub(crate) fn renewed(mut deployment: Arc<PdDeployment>, context: &Context) -> Arc<PdDeployment> {
    let uid = deployment.uid().unwrap_or_default();
    let memories = &context.memories;
    memories.read(&uid, |memory| memory.statuses.renew(&mut deployment));
    deployment
}

async fn reconcile_deployment(
    deployment: &PdDeployment,
    context: &Context,
) -> Result<Action, ReconcileError> {
    let writer = Writer::of(deployment, context)?;
    if deployment.metadata.deletion_timestamp.is_some() {
        return delete_all(&writer).await;
    }
    if !ensure_finalizer(&writer).await? {
        return Ok(Action::requeue(POLL_INTERVAL));
    }
    let now = Timestamp::now();
    let effective = match Box::pin(EffectiveSpec::choose(&writer)).await? {
        Chosen::Spec(effective) => effective,
        Chosen::Refused(refused) => return refuse(&writer, &refused, now).await,
        Chosen::Fetching(model) => return await_model(&writer, model, now).await,
    };
    // From here on the spec is the one that is carried out.
    let deployment = effective.deployment();
    let writer = Writer {
        deployment,
        ..writer
    };
    let ensured = match ensure_token(&writer).await {
        Ok(ensured) => ensured,
        Err(error) => return refuse_without_token(&writer, error, now).await,
    };
    let keyed = match ensure_peer_keys(&writer).await {
        Ok(()) => ensure_worker_key(&writer).await,
        failed => failed,
    };
    let (requeue_after, failure) = run_phases(&writer, &effective, (ensured, keyed), now).await;
    if let Some(error) = failure {
        return Err(ReconcileError::Apply {
            error,
            requeue_after,
        });
    }
    context.succeeded(deployment);
    Ok(requeue_after.map_or_else(Action::await_change, Action::requeue))
}

/// Brings what there is one step closer to the spec. Returns when to reconcile again though no watch reports anything,
/// and what failed first: a write, or what the Secrets of the deployment need.
async fn run_phases(
    writer: &Writer<'_>,
    effective: &EffectiveSpec,
    (ensured, keyed): (Ensured, Result<(), ApplyError>),
    now: Timestamp,
) -> (Option<Duration>, Option<ApplyError>) {
    let Ensured { token, failure } = ensured;
    let snapshot = Snapshot::read(writer, effective, &token, now);
    let nodes = &writer.context.index.nodes;
    let (clients, mut scaler) = (Clients::of(writer, Some(&token)), take_scaler(writer));
    let observed = observe(&snapshot, &clients, nodes, scaler.as_mut());
    let fetches = node_fetches::observe(&snapshot, &clients.http);
    let (observed, fetches, queued) =
        join3(observed, fetches, queue::verdict(writer, &snapshot)).await;
    let rotation = match &keyed {
        Ok(()) => observe_rotation(writer, &snapshot, &clients.http).await,
        Err(_) => None,
    };
    let writes = decide_writes(&snapshot, &observed, scaler.as_mut());
    let mut outcome = write(writer, clients.admin.as_ref(), &snapshot, &writes).await;
    outcome.note(failure.map_or(keyed, Err));
    let weights = follow_weights(&snapshot, clients.admin.as_ref()).await;
    if let Some(rotation) = &rotation {
        outcome.note(write_rotation(writer, rotation).await);
    }
    remember_gangs(writer, &snapshot, &writes, &outcome);
    let decision = writes.scaling.as_ref().filter(|_| outcome.scaled);
    if let Some((scaler, decision)) = scaler.as_mut().zip(decision) {
        scaler.record(decision, snapshot.now);
    }
    let ask_again = queued.as_ref().map(|_| queue::INTERVAL);
    let said = Said {
        outcome: &outcome,
        rotation: rotation.as_ref(),
        weights: weights.as_ref(),
        fetches: &fetches,
        queued,
    };
    let status = status_of(&snapshot, &observed, &writes, said, scaler.as_ref());
    put_scaler(writer, scaler);
    let first = first_timer(&snapshot, &observed, &status);
    let timer = ask_again.into_iter().chain(first);
    let timer = timer.chain(gangs::timer(&snapshot, writes.released));
    let timer = timer.chain(rotation.and_then(|it| it.timer()));
    let timer = timer.chain(weights.map(|it| it.timer()));
    let timer = timer.chain(fetches.go_on().then_some(models::INTERVAL));
    let debounce = report(writer, &effective.resources, status, &mut outcome).await;
    (timer.chain(debounce).min(), outcome.failure)
}

/// Remembers what gangs gave back, and of those that gather which have PodGroups.
fn remember_gangs(
    writer: &Writer<'_>,
    snapshot: &Snapshot<'_>,
    writes: &Writes<'_>,
    outcome: &Outcome,
) {
    let gathers = |name: &String| {
        let mut gathering = snapshot.gangs.gathering.iter();
        gathering.any(|it| it.gang.name == *name)
    };
    writer.context.memories.update(&writer.uid(), |memory| {
        // What failed is done again, and is not counted twice.
        if outcome.failure.is_none() {
            memory.released = writes.released;
        }
        memory.pod_groups.retain(gathers);
    });
}

/// What a status says beside the pods.
struct Said<'a> {
    outcome: &'a Outcome,
    rotation: Option<&'a Rotation>,
    weights: Option<&'a Weights>,
    fetches: &'a NodeFetches,
    /// Why a gang has no quota.
    queued: Option<Stuck>,
}

/// What there is to say, with how the writes went.
fn status_of(
    snapshot: &Snapshot<'_>,
    observed: &Observed,
    writes: &Writes<'_>,
    said: Said<'_>,
    scaler: Option<&Scaler>,
) -> PdDeploymentStatus {
    let Said {
        outcome,
        rotation,
        weights,
        fetches,
        queued,
    } = said;
    let decisions = scaler.map(|scaler| scaler.decisions.clone());
    let mut inputs = status_inputs(snapshot, observed, outcome, decisions.unwrap_or_default());
    inputs.lacks_slots = scaler.and_then(|scaler| scaler.slot_shortage.lacks());
    inputs.rotation = rotation.map(Rotation::said);
    inputs.weights = weights.map(Weights::said);
    inputs.half_placed = gangs::said(snapshot, writes.released);
    // To wait for one's turn is no failure, and neither is a fetch that goes on.
    if fetches.go_on() || queued.is_some() {
        inputs.progressed = Some(snapshot.now);
    }
    let stuck = inputs.stuck.take();
    let is_gated = stuck.as_ref().is_none_or(|it| it.cause == Cause::Queued);
    inputs.stuck = queued.filter(|_| is_gated).or(stuck);
    if let Some(model) = &mut inputs.model {
        fetches.write_to(model);
    }
    let (deployment, desired) = (snapshot.deployment(), &writes.desired);
    status::status(deployment, desired, observed, &inputs, snapshot.now)
}

/// Says when a failed reconcile is repeated.
pub(crate) fn retry(
    deployment: Arc<PdDeployment>,
    error: &ReconcileError,
    context: Arc<Context>,
) -> Action {
    let failures = context.failed(&deployment);
    let requeue_after = match error {
        ReconcileError::Apply { requeue_after, .. } => requeue_after.unwrap_or(RETRY_MAX),
        ReconcileError::NoNamespace(_) => RETRY_MAX,
    };
    let pause = RETRY.delay(failures).min(requeue_after);
    tracing::warn!(
        deployment = %ObjectRef::from_obj(&*deployment),
        %error,
        retry_seconds = pause.as_secs(),
        "reconcile failed"
    );
    Action::requeue(pause)
}

/// How long to wait for what no watch reports.
fn first_timer(
    snapshot: &Snapshot<'_>,
    observed: &Observed,
    status: &PdDeploymentStatus,
) -> Option<Duration> {
    let (spec, pods) = (snapshot.spec(), &snapshot.pods);
    let is_leaving = |pod: &ObservedPod| pod.leaving.is_some_and(|leaving| !leaving.terminated);
    let is_coming = |facts: &PodFacts| facts.is_worker() && facts.ready() && !facts.routable();
    let polls = observed.pods.iter().any(is_leaving) || pods.iter().any(is_coming);
    // A watch reports progress until then.
    let under_way = status::under_way_since(status);
    let overdue_in = under_way
        .filter_map(|since| time_left(snapshot, since))
        .min();
    let timers = [
        polls.then_some(POLL_INTERVAL),
        spec.scales_by_load().then_some(INTERVAL),
        overdue_in.map(|left| left + POLL_INTERVAL),
        snapshot.effective.fetching().map(|_| models::INTERVAL),
    ];
    timers.into_iter().flatten().min()
}

/// Until what has been under way for some time is overdue, if nothing goes forward; nothing once it is.
fn time_left(snapshot: &Snapshot<'_>, since: Timestamp) -> Option<Duration> {
    let deadline = snapshot.spec().rollout.progress_deadline_seconds;
    let deadline = SignedDuration::from_secs(deadline.into());
    let progressed = snapshot.progressed().unwrap_or(snapshot.now);
    let left = deadline - snapshot.now.duration_since(progressed.max(since));
    left.try_into().ok()
}

#[cfg(test)]
mod tests;
