//! A deployment ends: a finalizer orders it, workers drain while routers still carry their streams. Where a spec was
//! never valid, workers on their way out go on.

use super::admin_secret::ensure_token;
use super::apply::{Writer, merge_params};
use super::error::{ApplyError, ReconcileError, failed};
use super::facts::PodFacts;
use super::observe::{Clients, POLL_INTERVAL, observe_pods};
use super::report::{Report, write_report};
use super::snapshot::pods;
use super::status;
use super::workers::{WorkerWrite, steps};
use super::write::{Outcome, write_workers};
use crate::controller::build::component::Component;
use crate::controller::plan::{Desired, plan};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Patch;
use kube::runtime::controller::Action;
use pd_crds::PdDeployment;
use pd_protocol::labels;
use serde_json::json;

/// Says why a spec is not carried out that was never valid, or no longer builds; workers on their
/// way out go on, and none is made.
pub(super) async fn refuse(
    writer: &Writer<'_>,
    refused: &str,
    now: Timestamp,
) -> Result<Action, ReconcileError> {
    let leave = pods(writer, None).iter().any(PodFacts::leaves);
    let mut outcome = Outcome::default();
    if leave {
        step_towards(writer, &[], now, &mut outcome).await;
    }
    let status = status::refused(writer.deployment, status::INVALID_SPEC, refused, now);
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
            step_towards(writer, &nothing, Timestamp::now(), &mut outcome).await;
            return match outcome.failure {
                Some(error) => Err(ReconcileError::Apply {
                    error,
                    requeue_after: Some(POLL_INTERVAL),
                }),
                None => Ok(Action::requeue(POLL_INTERVAL)),
            };
        }
        write_finalizers(writer, &rest).await?;
    }
    writer.context.forget(&writer.uid());
    Ok(Action::await_change())
}

/// Takes the next steps where nothing is made any more. Without an admin token workers cannot be asked to drain, and
/// drain when they are ended: a Secret of another owner must not keep a deployment from going.
async fn step_towards(
    writer: &Writer<'_>,
    desired: &[Desired],
    now: Timestamp,
    outcome: &mut Outcome,
) {
    let token = ensure_token(writer).await;
    let token = token.inspect_err(|error| {
        let deployment = writer.key();
        tracing::warn!(%deployment, %error, "no admin token; workers drain when they are ended");
    });
    let token = token.ok();
    let pods = pods(writer, token.as_ref());
    let clients = Clients::of(writer, token.as_ref());
    let observed = observe_pods(writer.deployment, &pods, &clients, now).await;
    let steps = steps(&plan(desired, &observed), &pods, &observed, None);
    let steps: Vec<&WorkerWrite> = steps.iter().collect();
    write_workers(writer, clients.admin.as_ref(), &steps, outcome).await;
}

/// A finalizer orders deletion: workers drain while routers still carry their streams.
pub(super) async fn ensure_finalizer(writer: &Writer<'_>) -> Result<(), ApplyError> {
    let held = writer.deployment.finalizers();
    if held.iter().any(|name| name == labels::FINALIZER) {
        return Ok(());
    }
    let mut finalizers = held.to_vec();
    finalizers.push(labels::FINALIZER.to_owned());
    write_finalizers(writer, &finalizers).await
}

async fn write_finalizers(writer: &Writer<'_>, finalizers: &[String]) -> Result<(), ApplyError> {
    let name = writer.deployment.name_any();
    let patch = Patch::Merge(json!({"metadata": {
        "finalizers": finalizers,
        "resourceVersion": writer.deployment.resource_version(),
    }}));
    let api = writer.api::<PdDeployment>();
    match api.patch(&name, &merge_params(), &patch).await {
        Ok(_) => Ok(()),
        // It has gone meanwhile.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(source) => Err(failed::<PdDeployment>("mark", &name, source)),
    }
}

#[cfg(test)]
mod tests;
