//! One reconcile of a deployment. It assumes nothing about the one before it.
//!
//! Life of a reconcile: a valid spec is chosen → [`Snapshot::read`] → [`observe`] → [`decide`] → [`write`] → [`report`].
//! Only `observe` asks the deployment's processes, only `decide` decides, and it does no I/O.

use super::apply::Writer;
use super::context::Context;
use super::deletion::{delete_all, ensure_finalizer, refuse};
use super::error::{ApplyError, ReconcileError};
use super::facts::PodFacts;
use super::held_token::Held;
use super::history::last_valid;
use super::observe::{AWAITING, Clients, observe};
use super::report::{Report, report, write_report};
use super::scaling::{INTERVAL, put_scaler, take_scaler};
use super::snapshot::{Course, Snapshot};
use super::status;
use super::status_inputs::{bounded, status_inputs};
use super::sync::{Sync, decide};
use super::token::ensure_token;
use super::write::{Outcome, write};
use crate::controller::plan::{Observed, ObservedPod};
use crate::controller::validate::{self, Valid};
use crate::scaler::Scaler;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
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
    ensure_finalizer(&writer).await?;
    let now = Timestamp::now();
    let course = match choose_course(&writer).await? {
        Ok(course) => course,
        Err(refused) => return refuse(&writer, &refused, now).await,
    };
    // From here on the spec is the one that is carried out.
    let deployment = course.deployment();
    let writer = Writer {
        deployment,
        ..writer
    };
    let token = match ensure_token(&writer).await {
        Ok(token) => token,
        Err(error) => {
            let status = status::refused(deployment, status::CANNOT_APPLY, &bounded(&error), now);
            // What failed first is what the caller reports.
            if let Err(unwritten) = write_report(&writer, Report::without_pools(status)).await {
                tracing::warn!(deployment = %writer.key(), error = %unwritten, "cannot write a status");
            }
            return Err(error.into());
        }
    };
    let (again, failure) = sync(&writer, &course, &token, now).await;
    if let Some(error) = failure {
        return Err(ReconcileError::Apply { error, again });
    }
    context.succeeded(deployment);
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}

/// The spec, or while that is refused, the last valid one; why it is refused where there is none.
async fn choose_course(writer: &Writer<'_>) -> Result<Result<Course, String>, ApplyError> {
    let Writer {
        context,
        deployment,
        ..
    } = writer;
    let valid = validate::for_a_cluster(deployment, &context.config);
    let refused = match Course::of(valid, context) {
        Ok(course) => return Ok(Ok(course)),
        Err(errors) => bounded(&errors),
    };
    let kept = last_valid(writer).await?.map(Valid::accepted_before);
    let kept = kept.and_then(|kept| Course::of(Ok(kept), context).ok());
    Ok(match kept {
        Some(kept) => Ok(Course {
            refused: Some(refused),
            ..kept
        }),
        None => Err(refused),
    })
}

/// Brings what there is one step closer to the spec. Says when to look again at what no watch reports, and which write
/// failed first.
async fn sync(
    writer: &Writer<'_>,
    course: &Course,
    token: &Held,
    now: Timestamp,
) -> (Option<Duration>, Option<ApplyError>) {
    let snapshot = Snapshot::read(writer, course, token, now);
    let nodes = &writer.context.index.nodes;
    let (clients, mut scaler) = (Clients::of(writer, Some(token)), take_scaler(writer));
    let observed = observe(&snapshot, &clients, nodes, scaler.as_mut()).await;
    let sync = decide(&snapshot, &observed, scaler.as_mut());
    let mut outcome = write(writer, clients.admin.as_ref(), &snapshot, &sync).await;
    let decision = sync.scaling.as_ref().filter(|_| outcome.scaled);
    if let Some((scaler, decision)) = scaler.as_mut().zip(decision) {
        scaler.record(decision, snapshot.now);
    }
    let status = status_of(&snapshot, &observed, &sync, &outcome, scaler.as_ref());
    put_scaler(writer, scaler);
    let again = requeue_after(&snapshot, &observed, &status);
    let settles = report(writer, &course.resources, status, &mut outcome).await;
    (again.into_iter().chain(settles).min(), outcome.failure)
}

/// What there is to say, with how the writes went.
fn status_of(
    snapshot: &Snapshot<'_>,
    observed: &Observed,
    sync: &Sync<'_>,
    outcome: &Outcome,
    scaler: Option<&Scaler>,
) -> PdDeploymentStatus {
    let decisions = scaler.map(|scaler| scaler.decisions.clone());
    let inputs = status_inputs(snapshot, observed, outcome, decisions.unwrap_or_default());
    let deployment = snapshot.deployment();
    status::status(deployment, &sync.desired, observed, &inputs, snapshot.now)
}

/// Says when a failed reconcile is repeated.
pub(crate) fn retry(
    deployment: Arc<PdDeployment>,
    error: &ReconcileError,
    context: Arc<Context>,
) -> Action {
    let failures = context.failed(&deployment);
    let again = match error {
        ReconcileError::Apply { again, .. } => again.unwrap_or(RETRY_MAX),
        ReconcileError::NoNamespace(_) => RETRY_MAX,
    };
    let pause = RETRY.delay(failures).min(again);
    tracing::warn!(
        deployment = %ObjectRef::from_obj(&*deployment),
        %error,
        retry_seconds = pause.as_secs(),
        "reconcile failed"
    );
    Action::requeue(pause)
}

/// When to look again at what no watch reports.
fn requeue_after(
    snapshot: &Snapshot<'_>,
    observed: &Observed,
    status: &PdDeploymentStatus,
) -> Option<Duration> {
    let (spec, pods) = (snapshot.spec(), &snapshot.pods);
    let is_leaving = |pod: &ObservedPod| pod.leaving.is_some_and(|leaving| !leaving.terminated);
    let is_coming = |facts: &PodFacts| facts.slot.is_some() && facts.ready() && !facts.routable();
    let waits = observed.pods.iter().any(is_leaving) || pods.iter().any(is_coming);
    // A watch reports progress until then.
    let overdue_in = time_left(snapshot).filter(|_| status::is_progressing(status));
    let timers = [
        waits.then_some(AWAITING),
        spec.scales_by_load().then_some(INTERVAL),
        overdue_in.map(|left| left + AWAITING),
    ];
    timers.into_iter().flatten().min()
}

/// Until something that does not go forward is overdue; nothing once it is.
fn time_left(snapshot: &Snapshot<'_>) -> Option<Duration> {
    let deadline = snapshot.spec().rollout.progress_deadline_seconds;
    let deadline = SignedDuration::from_secs(deadline.into());
    let progressed = snapshot.progressed().unwrap_or(snapshot.now);
    let left = deadline - snapshot.now.duration_since(progressed);
    left.try_into().ok()
}

#[cfg(test)]
mod tests;
