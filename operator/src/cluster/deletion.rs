//! A deployment ends: a finalizer orders it, workers drain while routers still carry their streams. Where a spec was
//! never valid, or there is no admin token, workers on their way out go on.

use super::admin_secret::ensure_token;
use super::admin_token::AdminToken;
use super::apply::{Writer, merge_params};
use super::error::{ApplyError, ReconcileError, bounded, failed};
use super::facts::PodFacts;
use super::models;
use super::observe::{Clients, POLL_INTERVAL, observe_pods};
use super::report::{Report, write_report};
use super::snapshot::pods;
use super::status;
use super::workers::{WorkerWrite, leaving_steps};
use super::write::{Outcome, write_workers};
use crate::controller::build::component::Component;
use crate::controller::plan::{Desired, plan};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Patch;
use kube::runtime::controller::Action;
use pd_crds::status::ModelStatus;
use pd_crds::{PdDeployment, PdDeploymentStatus};
use pd_protocol::labels;
use serde_json::json;

/// Says why a spec is not carried out that was never valid, or no longer builds; workers on their
/// way out go on, and none is made.
pub(super) async fn refuse(
    writer: &Writer<'_>,
    refused: &str,
    now: Timestamp,
) -> Result<Action, ReconcileError> {
    let token = if any_leaves(writer) {
        token_if_any(writer).await
    } else {
        None
    };
    let outcome = Outcome::default();
    let status = status::refused(writer.deployment, status::INVALID_SPEC, refused, now);
    end_leaving(writer, token.as_ref(), status, outcome, now).await
}

/// Says how far the model is without which nothing is made.
pub(super) async fn await_model(
    writer: &Writer<'_>,
    model: ModelStatus,
    now: Timestamp,
) -> Result<Action, ReconcileError> {
    let status = status::fetching(writer.deployment, model, now);
    end_leaving(writer, None, status, Outcome::default(), now).await?;
    Ok(Action::requeue(models::INTERVAL))
}

/// Says that there is no admin token, without which nothing is made; workers on their way out go on.
pub(super) async fn refuse_without_token(
    writer: &Writer<'_>,
    error: ApplyError,
    now: Timestamp,
) -> Result<Action, ReconcileError> {
    let message = bounded(&error);
    let status = status::refused(writer.deployment, status::CANNOT_APPLY, &message, now);
    let mut outcome = Outcome::default();
    outcome.note(Err(error));
    end_leaving(writer, None, status, outcome, now).await
}

fn any_leaves(writer: &Writer<'_>) -> bool {
    pods(writer, None).iter().any(PodFacts::leaves)
}

/// Takes the next steps of workers on their way out, and writes a status.
async fn end_leaving(
    writer: &Writer<'_>,
    token: Option<&AdminToken>,
    status: PdDeploymentStatus,
    mut outcome: Outcome,
    now: Timestamp,
) -> Result<Action, ReconcileError> {
    let leave = any_leaves(writer);
    if leave {
        step_towards(writer, token, &[], now, &mut outcome).await;
    }
    outcome.note(write_report(writer, Report::without_pools(status)).await);
    let requeue_after = leave.then_some(POLL_INTERVAL);
    if let Some(error) = outcome.failure {
        return Err(ReconcileError::Apply {
            error,
            requeue_after,
        });
    }
    Ok(requeue_after.map_or_else(Action::await_change, Action::requeue))
}

/// Drains every worker, then lets the object and with it everything it owns go.
pub(super) async fn delete_all(writer: &Writer<'_>) -> Result<Action, ReconcileError> {
    let finalizers = writer.deployment.finalizers();
    let (ours, rest): (Vec<_>, Vec<_>) = finalizers
        .iter()
        .cloned()
        .partition(|name| name == labels::FINALIZER);
    if !ours.is_empty() {
        if pods(writer, None).iter().any(PodFacts::is_worker) {
            let nothing = [Component::Prefill, Component::Decode].map(Desired::nothing);
            let mut outcome = Outcome::default();
            let token = token_if_any(writer).await;
            let now = Timestamp::now();
            step_towards(writer, token.as_ref(), &nothing, now, &mut outcome).await;
            return match outcome.failure {
                Some(error) => Err(ReconcileError::Apply {
                    error,
                    requeue_after: Some(POLL_INTERVAL),
                }),
                None => Ok(Action::requeue(POLL_INTERVAL)),
            };
        }
        if !write_finalizers(writer, &rest).await? {
            return Ok(Action::requeue(POLL_INTERVAL));
        }
    }
    writer.context.forget(&writer.uid());
    Ok(Action::await_change())
}

/// The admin token, or nothing where none can be had: a Secret of another owner must not keep a deployment from going.
async fn token_if_any(writer: &Writer<'_>) -> Option<AdminToken> {
    let ensured = ensure_token(writer).await.inspect_err(|error| {
        let deployment = writer.key();
        tracing::warn!(%deployment, %error, "no admin token; workers drain when they are ended");
    });
    Some(ensured.ok()?.token)
}

/// Takes the next steps where nothing is made any more. Without an admin token workers cannot be asked to drain, and
/// drain when they are ended.
async fn step_towards(
    writer: &Writer<'_>,
    token: Option<&AdminToken>,
    desired: &[Desired],
    now: Timestamp,
    outcome: &mut Outcome,
) {
    let pods = pods(writer, token);
    let clients = Clients::of(writer, token);
    let observed = observe_pods(writer.deployment, &pods, &clients, now).await;
    let steps = leaving_steps(&plan(desired, &observed), &pods, &observed, None);
    let steps: Vec<&WorkerWrite> = steps.iter().collect();
    write_workers(writer, clients.admin.as_ref(), &steps, outcome).await;
}

/// A finalizer orders deletion: workers drain while routers still carry their streams. Says whether it is there, which it
/// is not where the watch is late.
pub(super) async fn ensure_finalizer(writer: &Writer<'_>) -> Result<bool, ApplyError> {
    let held = writer.deployment.finalizers();
    if held.iter().any(|name| name == labels::FINALIZER) {
        return Ok(true);
    }
    let mut finalizers = held.to_vec();
    finalizers.push(labels::FINALIZER.to_owned());
    write_finalizers(writer, &finalizers).await
}

/// Says whether they are written: not to a deployment that has changed since it was seen.
async fn write_finalizers(writer: &Writer<'_>, finalizers: &[String]) -> Result<bool, ApplyError> {
    let name = writer.deployment.name_any();
    let patch = Patch::Merge(json!({"metadata": {
        "finalizers": finalizers,
        "resourceVersion": writer.deployment.resource_version(),
    }}));
    let api = writer.api::<PdDeployment>();
    match api.patch(&name, &merge_params(), &patch).await {
        Ok(_) => Ok(true),
        // It has gone meanwhile.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(true),
        Err(kube::Error::Api(status)) if status.is_conflict() => Ok(false),
        Err(source) => Err(failed::<PdDeployment>("mark", &name, source)),
    }
}

#[cfg(test)]
mod tests;
