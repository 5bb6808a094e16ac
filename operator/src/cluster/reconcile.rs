//! One reconcile of a deployment: validate and build, write what surrounds the pods, observe, plan and carry out
//! its steps, scale, report. It assumes nothing about the one before it.

use super::apply::Writer;
use super::context::Context;
use super::error::ApplyError;
use super::error::ReconcileError;
use super::facts::{PodFacts, all_facts};
use super::observe::observe;
use super::report::Report;
use super::scaling;
use super::shared::FormerAccount;
use super::status::{self, StatusInputs};
use crate::controller::build::{self, Resources};
use crate::controller::plan::{Action as Step, Observed, ObservedPod, plan};
use crate::controller::validate::{self, Valid};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use pd_crds::field::FieldErrors;
use pd_crds::{PdDeployment, PdDeploymentSpec, PdDeploymentStatus};
use pd_protocol::{Backoff, labels};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause until the next reconcile while something is awaited that no watch reports: a router's
/// acknowledgement, the end of a drain.
pub(super) const AWAITING: Duration = Duration::from_secs(1);
/// Longest pause after a failure; it doubles with each in a row.
const RETRY_MAX: Duration = Duration::from_secs(60);
const RETRY: Backoff = Backoff::doubling(Duration::from_secs(1), RETRY_MAX);

/// Outcome of syncing a valid deployment.
struct Synced {
    /// When to look again at what no watch reports.
    again: Option<Duration>,
    /// The first write that failed.
    failure: Option<ApplyError>,
}

/// What is carried out of a deployment: its spec, or while that is refused, the last valid one.
struct Course {
    valid: Valid,
    resources: Resources,
    refused: Option<String>,
}

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
    let namespace = deployment
        .namespace()
        .ok_or_else(|| ReconcileError::NoNamespace(deployment.name_any()))?;
    let writer = Writer {
        context,
        deployment,
        namespace: &namespace,
    };
    if deployment.metadata.deletion_timestamp.is_some() {
        return writer.delete_all().await;
    }
    writer.ensure_finalizer().await?;
    let now = Timestamp::now();
    let valid = validate::for_a_cluster(deployment, &context.config);
    let course = match Course::of(valid, context) {
        Ok(course) => course,
        Err(errors) => {
            let refused = bounded(&errors);
            let kept = writer.last_valid().await?.map(Valid::accepted_before);
            match kept.map(|kept| Course::of(Ok(kept), context)) {
                Some(Ok(course)) => Course {
                    refused: Some(refused),
                    ..course
                },
                None | Some(Err(_)) => return writer.refuse(&refused, now).await,
            }
        }
    };
    // From here on the spec is the one that is carried out.
    let deployment = course.valid.deployment();
    let writer = Writer {
        deployment,
        ..writer
    };
    if let Err(error) = writer.ensure_token().await {
        let status = status::refused(deployment, status::CANNOT_APPLY, &bounded(&error), now);
        writer.report(Report::without_pools(status)).await?;
        return Err(error.into());
    }
    let synced = writer.sync(&course, now).await;
    if let Some(error) = synced.failure {
        return Err(ReconcileError::Apply {
            error,
            again: synced.again,
        });
    }
    context.succeeded(deployment);
    Ok(synced
        .again
        .map_or_else(Action::await_change, Action::requeue))
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

// === impl Course ===

impl Course {
    fn of(valid: Result<Valid, FieldErrors>, context: &Context) -> Result<Self, FieldErrors> {
        let valid = valid?;
        Ok(Self {
            resources: build::build(&valid, &context.config)?,
            valid,
            refused: None,
        })
    }
}

// === impl Writer ===

impl Writer<'_> {
    pub(crate) fn key(&self) -> ObjectRef<PdDeployment> {
        ObjectRef::new(&self.deployment.name_any()).within(self.namespace)
    }

    pub(crate) fn facts(&self) -> Vec<PodFacts> {
        let pods = self.context.pods.of(&self.key());
        let mut facts = all_facts(self.deployment, pods, &self.context.nodes);
        let since = self.context.token_since(&self.uid());
        for facts in &mut facts {
            let began = facts.pod.creation_timestamp().map(|time| time.0);
            facts.holds_old_token = since.is_some() && began < since;
        }
        facts
    }

    /// Writes what surrounds the pods, then takes the next steps of the plan. A write that fails
    /// does not keep the others from being tried.
    async fn sync(&self, course: &Course, now: Timestamp) -> Synced {
        let Course {
            valid,
            resources,
            refused,
        } = course;
        let mut failure = self.apply_routers(resources).await.err();
        let desired = match self.desired(valid, resources).await {
            Ok(desired) => desired,
            Err(error) => {
                failure.get_or_insert(error);
                Vec::new()
            }
        };
        let facts = self.facts();
        if let Err(error) = self.apply_budgets(valid, &desired, &facts).await {
            failure.get_or_insert(error);
        }
        let (admin, probes) = (self.context.admin(self.deployment), &self.context.probes);
        let mut observed = observe(self.deployment, &facts, &admin, probes, now).await;
        self.note_degraded(&facts, &mut observed);
        let steps = if desired.is_empty() {
            Vec::new()
        } else {
            plan(&desired, &observed)
        };
        let outcome = self.take_steps(&steps, &facts, &observed, resources).await;
        if let Err(error) = outcome {
            failure.get_or_insert(error);
        }
        let spec = &valid.deployment().spec;
        let decided = self.scale_by_load(spec, &desired, &facts, &observed).await;
        let decisions = decided.unwrap_or_else(|error| {
            failure.get_or_insert(error);
            let before = self.deployment.status.as_ref();
            before.map_or_else(Vec::new, |status| status.decisions.clone())
        });
        let inputs = StatusInputs {
            decisions,
            refused: refused.clone(),
            ..self.status_inputs(valid, resources, &facts, &observed, failure.as_ref())
        };
        let status = status::status(self.deployment, &desired, &observed, &inputs, now);
        let again = requeue_after(spec, &status, &facts, &observed);
        let report = Report {
            pools: self.pool_reports(resources, &status),
            status,
        };
        let reported = match &failure {
            Some(_) => self.report(report).await.map(|()| None),
            None => self.report_settled(report).await,
        };
        let settles = reported.unwrap_or_else(|error| {
            failure.get_or_insert(error);
            None
        });
        Synced {
            again: again.into_iter().chain(settles).min(),
            failure,
        }
    }

    /// What the namespace shares, router, Service, and the record of the revision.
    async fn apply_routers(&self, resources: &Resources) -> Result<(), ApplyError> {
        self.apply_shared().await?;
        self.apply(&resources.service, &self.context.services)
            .await?;
        let made = with_token(&resources.router, self.context.token_since(&self.uid()));
        let routers = self.routers(made).await?;
        let account = self.former_account(&routers);
        if account == FormerAccount::Kept {
            self.keep_former_account().await?;
        }
        self.hand_over_replicas(&routers).await?;
        self.apply(&routers, &self.context.deployments).await?;
        self.remove_former(account).await?;
        self.record_revision().await
    }

    async fn take_steps(
        &self,
        steps: &[Step],
        facts: &[PodFacts],
        observed: &Observed,
        resources: &Resources,
    ) -> Result<(), ApplyError> {
        let mut outcome = Ok(());
        for admitted in newly_routable(facts, observed) {
            outcome = outcome.and(self.admit(admitted).await);
        }
        for facts in facts {
            outcome = outcome.and(self.relabel(facts).await);
            outcome = outcome.and(self.complete(facts, resources).await);
        }
        for step in steps {
            tracing::debug!(deployment = %self.key(), ?step, "carrying out a step");
            outcome = outcome.and(self.step(step, facts, observed, Some(resources)).await);
        }
        outcome
    }
}

/// The routers, so that those which hold another token are replaced.
fn with_token(router: &Deployment, since: Option<Timestamp>) -> Deployment {
    let mut router = router.clone();
    if let (Some(spec), Some(since)) = (&mut router.spec, since) {
        let metadata = spec.template.metadata.get_or_insert_default();
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(labels::TOKEN_SINCE.to_owned(), since.to_string());
    }
    router
}

/// When to look again at what no watch reports.
fn requeue_after(
    spec: &PdDeploymentSpec,
    status: &PdDeploymentStatus,
    facts: &[PodFacts],
    observed: &Observed,
) -> Option<Duration> {
    let is_leaving = |pod: &ObservedPod| pod.leaving.is_some_and(|leaving| !leaving.terminated);
    let is_coming = |facts: &PodFacts| facts.slot.is_some() && facts.ready() && !facts.routable();
    let waits = observed.pods.iter().any(is_leaving) || facts.iter().any(is_coming);
    let deadline =
        Duration::from_secs(spec.rollout.progress_deadline_seconds.unsigned_abs().into());
    let looks = [
        (waits, AWAITING),
        (spec.scales_by_load(), scaling::INTERVAL),
        // A watch reports progress until then.
        (status::is_progressing(status), deadline + AWAITING),
    ];
    let due = looks.into_iter().filter(|(holds, _)| *holds);
    due.map(|(_, pause)| pause).min()
}

/// Workers that every router acknowledged, whose gate has not latched yet.
fn newly_routable<'a>(
    facts: &'a [PodFacts],
    observed: &'a Observed,
) -> impl Iterator<Item = &'a PodFacts> {
    facts.iter().filter(|facts| {
        let name = facts.pod.name_any();
        let mut pods = observed.pods.iter();
        !facts.routable() && !facts.leaves() && pods.any(|pod| pod.name == name && pod.routable)
    })
}

/// A message as a condition may carry it: Events end at 1 kB.
pub(super) fn bounded(message: &impl ToString) -> String {
    let mut text = message.to_string();
    if let Some((end, _)) = text.char_indices().nth(1000) {
        text.truncate(end);
        text.push('…');
    }
    text
}
