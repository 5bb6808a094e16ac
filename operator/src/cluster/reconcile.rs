//! One reconcile of a deployment: dereference → validate → build → observe and plan → apply →
//! status. It assumes nothing about the one before it.

use super::apply::{ApplyError, Writer, failed, merge_params};
use super::context::Context;
use super::facts::{PodFacts, all_facts};
use super::observe::observe;
use super::report::Report;
use super::scaling;
use super::shared::FormerAccount;
use super::status::{self, StatusInputs};
use crate::controller::build::budget::{Evictable, Mover, build_budgets};
use crate::controller::build::component::Component;
use crate::controller::build::pool::Pool;
use crate::controller::build::{self, Resources, revision, router, service};
use crate::controller::plan::{Action as Step, Desired, Observed, ObservedPod, plan};
use crate::controller::validate::{self, Valid};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Patch;
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType};
use kube::runtime::reflector::ObjectRef;
use pd_crds::drain::OnCordon;
use pd_crds::field::FieldErrors;
use pd_crds::node_disposition::NodeDisposition;
use pd_crds::scaling::ScalingMode;
use pd_crds::{PdDeployment, PdDeploymentSpec, PdDeploymentStatus};
use pd_protocol::{Backoff, labels};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pause until the next look while something is awaited that no watch reports: a router's
/// acknowledgement, the end of a drain.
const AWAITING: Duration = Duration::from_secs(1);
/// Longest pause after a failure; it doubles with each in a row.
const RETRY_MAX: Duration = Duration::from_secs(60);
const RETRY: Backoff = Backoff::doubling(Duration::from_secs(1), RETRY_MAX);

/// Why a reconcile did not end; it is repeated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    #[error("{error}")]
    Apply {
        #[source]
        error: ApplyError,
        /// When to look again at what goes on beside it.
        again: Option<Duration>,
    },
    #[error("{0} lies in no namespace")]
    NoNamespace(String),
}

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
    let deployment = context.written.renewed(deployment);
    let result = Box::pin(reconcile_deployment(&deployment, &context)).await;
    context.metrics.reconciling.dec();
    let error = result.as_ref().err();
    context.metrics.reconciled(began.elapsed(), error);
    result
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

impl From<ApplyError> for ReconcileError {
    fn from(error: ApplyError) -> Self {
        Self::Apply { error, again: None }
    }
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

    /// Disruption budgets; while the size of a pool is not known they stay as they are.
    async fn apply_budgets(
        &self,
        valid: &Valid,
        desired: &[Desired],
        facts: &[PodFacts],
    ) -> Result<(), ApplyError> {
        let spec = &valid.deployment().spec;
        if desired.is_empty() {
            return Ok(());
        }
        let moves = self.context.nodes.sees() && spec.drain.on_cordon == OnCordon::Move;
        let pools = desired.iter().map(|pool| Evictable {
            replicas: pool.replicas,
            nodes: pool.nodes,
        });
        let pools: Vec<Evictable> = pools.collect();
        let empties_node = facts
            .iter()
            .any(|facts| facts.disposition == NodeDisposition::Evacuate && facts.slot.is_some());
        let mover = match moves {
            true => Mover::of(&pools, empties_node),
            false => Mover::Eviction,
        };
        let wanted: u32 = pools.iter().map(|pool| pool.replicas * pool.nodes).sum();
        // In a rollout there are more, and still only one of them may go.
        let workers = facts.iter().filter(|facts| facts.slot.is_some());
        let exist = workers.map(|facts| facts.members().count()).sum::<usize>();
        let pods = wanted.max(u32::try_from(exist).unwrap_or(u32::MAX));
        let budgets = build_budgets(self.deployment, pods, self.routers_wanted(), mover);
        let known = &self.context.budgets;
        for budget in &budgets {
            self.apply(budget, known).await?;
        }
        let is_wanted = |name: &str| budgets.iter().any(|budget| budget.name_any() == name);
        self.remove_rest(known, is_wanted).await
    }

    /// What is wanted of each pool, as its `PDPool` says once it exists.
    async fn desired(
        &self,
        valid: &Valid,
        resources: &Resources,
    ) -> Result<Vec<Desired>, ApplyError> {
        let spec = &valid.deployment().spec;
        let mut desired = Vec::new();
        for pool in [&resources.prefill, &resources.decode] {
            let object = pool.object(self.deployment);
            let name = object.name_any();
            let replicas = match self.context.pools.find(&self.key(), &name) {
                None => {
                    self.create(&object, &self.context.pools, |pool| pool)
                        .await?;
                    pool.replicas
                }
                Some(stored) => {
                    let replicas = u32::try_from(stored.spec.replicas).unwrap_or(0);
                    if spec.autoscaling.mode == ScalingMode::Off && replicas != pool.replicas {
                        self.scale(&name, pool.replicas).await?;
                        // Else the spec has changed, and that is what it asks for.
                        if self.had_wanted(pool) {
                            self.publish(&scale_undone(pool, &name, replicas)).await;
                        }
                        pool.replicas
                    } else {
                        replicas
                    }
                }
            };
            desired.push(pool.desired(spec, replicas));
        }
        Ok(desired)
    }

    /// Whether a pool's size was the wanted one already when the status was last written.
    fn had_wanted(&self, pool: &Pool) -> bool {
        let status = self.deployment.status.as_ref();
        let wanted = status.map(|status| match pool.component {
            Component::Decode => status.pools.decode.desired,
            Component::Prefill | Component::Router => status.pools.prefill.desired,
        });
        wanted.and_then(|wanted| u32::try_from(wanted).ok()) == Some(pool.replicas)
    }

    /// As the spec says; where it leaves the number to others, those that there are.
    fn routers_wanted(&self) -> i32 {
        let pods = || {
            let pods = self.context.pods.of(&self.key()).into_iter();
            let role = Component::Router.as_str();
            let routers = pods.filter(|pod| {
                let is_router = pod.labels().get(labels::ROLE).is_some_and(|it| it == role);
                is_router && pod.metadata.deletion_timestamp.is_none()
            });
            i32::try_from(routers.count()).unwrap_or(i32::MAX).max(1)
        };
        self.deployment.spec.router.replicas.unwrap_or_else(pods)
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

    fn status_inputs(
        &self,
        valid: &Valid,
        resources: &Resources,
        facts: &[PodFacts],
        observed: &Observed,
        failure: Option<&ApplyError>,
    ) -> StatusInputs {
        let routers = facts
            .iter()
            .filter(|facts| facts.component == Component::Router && facts.ready());
        StatusInputs {
            routers: (
                i32::try_from(routers.count()).unwrap_or(i32::MAX),
                self.routers_wanted(),
            ),
            endpoint: service::endpoint(valid.deployment(), self.namespace),
            revision: revision::of_pools(&valid.deployment().spec),
            suspended: valid.deployment().spec.suspend,
            drifted: image_drift(facts, resources),
            refused: None,
            replaces_routers: self.replaces_routers(facts, &valid.deployment().spec),
            trouble: failure.map(bounded),
            decisions: Vec::new(),
            stuck: facts.iter().find_map(PodFacts::stuck),
            unpaired: observed.unpaired.as_ref().map(bounded),
            progressed: facts.iter().filter_map(PodFacts::last_change).max(),
        }
    }

    fn replaces_routers(&self, facts: &[PodFacts], spec: &PdDeploymentSpec) -> bool {
        let wanted = revision::revision(spec, Component::Router);
        let mut routers = facts
            .iter()
            .filter(|facts| facts.component == Component::Router && !facts.has_ended());
        routers.any(|router| router.revision() != wanted)
    }

    /// Says why a spec is not carried out that was never valid, or no longer builds; workers on their
    /// way out go on, and none is made.
    async fn refuse(&self, refused: &str, now: Timestamp) -> Result<Action, ReconcileError> {
        let mut again = None;
        if self.facts().iter().any(PodFacts::leaves) {
            self.ensure_token().await?;
            let facts = self.facts();
            let admin = self.context.admin(self.deployment);
            let probes = &self.context.probes;
            let observed = observe(self.deployment, &facts, &admin, probes, now).await;
            for step in plan(&[], &observed) {
                self.step(&step, &facts, &observed, None).await?;
            }
            again = Some(AWAITING);
        }
        let status = status::refused(self.deployment, status::INVALID_SPEC, refused, now);
        self.report(Report::without_pools(status)).await?;
        Ok(again.map_or_else(Action::await_change, Action::requeue))
    }

    /// A finalizer orders deletion: workers drain while routers still carry their streams.
    async fn ensure_finalizer(&self) -> Result<(), ApplyError> {
        let held = self.deployment.finalizers();
        if held.iter().any(|name| name == labels::FINALIZER) {
            return Ok(());
        }
        let mut finalizers = held.to_vec();
        finalizers.push(labels::FINALIZER.to_owned());
        self.write_finalizers(&finalizers).await
    }

    async fn write_finalizers(&self, finalizers: &[String]) -> Result<(), ApplyError> {
        let name = self.deployment.name_any();
        let patch = Patch::Merge(json!({"metadata": {
            "finalizers": finalizers,
            "resourceVersion": self.deployment.resource_version(),
        }}));
        self.api::<PdDeployment>()
            .patch(&name, &merge_params(), &patch)
            .await
            .map_err(|source| failed::<PdDeployment>("mark", &name, source))?;
        Ok(())
    }

    /// Drains every worker, then lets the object and with it everything it owns go.
    async fn delete_all(&self) -> Result<Action, ReconcileError> {
        let finalizers = self.deployment.finalizers();
        if finalizers.iter().all(|name| name != labels::FINALIZER) {
            self.context.forget(&self.uid());
            return Ok(Action::await_change());
        }
        if self.facts().iter().any(|facts| facts.slot.is_some()) {
            self.ensure_token().await?;
            let facts = self.facts();
            let admin = self.context.admin(self.deployment);
            let (probes, now) = (&self.context.probes, Timestamp::now());
            let observed = observe(self.deployment, &facts, &admin, probes, now).await;
            let desired = [Component::Prefill, Component::Decode].map(Desired::nothing);
            for step in plan(&desired, &observed) {
                self.step(&step, &facts, &observed, None).await?;
            }
            return Ok(Action::requeue(AWAITING));
        }
        let rest: Vec<String> = finalizers
            .iter()
            .filter(|name| *name != labels::FINALIZER)
            .cloned()
            .collect();
        self.write_finalizers(&rest).await?;
        self.context.forget(&self.uid());
        Ok(Action::await_change())
    }
}

/// Workers of the wanted revision that run another image than new ones would, in words.
fn image_drift(facts: &[PodFacts], resources: &Resources) -> Option<String> {
    let drifted = facts.iter().filter_map(|facts| {
        let (revision, wanted) = match facts.component {
            Component::Prefill => (
                resources.prefill.revision.as_str(),
                resources.prefill.image()?,
            ),
            Component::Decode => (
                resources.decode.revision.as_str(),
                resources.decode.image()?,
            ),
            Component::Router => router::revision_and_image(&resources.router)?,
        };
        let runs = facts.image()?;
        let stays = facts.revision() == revision && !facts.leaves() && !facts.has_ended();
        (runs != wanted && stays).then_some((runs, wanted))
    });
    let drifted: Vec<_> = drifted.collect();
    let (runs, wanted) = drifted.first()?;
    Some(format!(
        "{} pods of this revision run another image ({runs}) than new ones ({wanted})",
        drifted.len()
    ))
}

/// Says why a pool that another client scaled has its old size again.
fn scale_undone(pool: &Pool, name: &str, asked: u32) -> Event {
    let (role, replicas) = (pool.component.as_str(), pool.replicas);
    Event {
        type_: EventType::Warning,
        reason: "ScaleUndone".to_owned(),
        note: Some(format!(
            "PDPool {name} was set to {asked} and is {replicas} again: with spec.autoscaling.mode \
             Off the size is spec.pools.{role}.replicas; change that, or set the mode to External"
        )),
        action: "Scale".to_owned(),
        secondary: None,
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
fn bounded(message: &impl ToString) -> String {
    let mut text = message.to_string();
    if let Some((end, _)) = text.char_indices().nth(1000) {
        text.truncate(end);
        text.push('…');
    }
    text
}
