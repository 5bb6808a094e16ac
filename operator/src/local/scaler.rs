//! Sizes the pools of the deployment on this machine.

use super::fleet::{Entry, Fleet};
use super::process::Phase;
use super::status::ScalingStatus;
use super::target::Target;
use crate::controller::autoscale::ScalingSpec;
use crate::controller::autoscale::observations::{Replica, ReplicaState};
use crate::controller::autoscale::per_role::PerRole;
use crate::controller::build::component::Component;
use crate::controller::plan::{Desired, Observed, ObservedPod};
use crate::scaler::{self, Source};
use pd_crds::scaling::ScalingMode;
use std::time::Duration;

/// Pause between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Scaler {
    inner: scaler::Scaler,
    /// What was decided last; nothing where the spec says how many.
    targets: Option<PerRole<u32>>,
}

// === impl Scaler ===

impl Scaler {
    pub(crate) fn new() -> Self {
        Self {
            inner: scaler::Scaler::new(INTERVAL, Vec::new()),
            targets: None,
        }
    }

    /// What the target wants, with the replicas that were decided.
    pub(crate) fn desired(&self, target: &Target) -> Vec<Desired> {
        let mut desired = target.desired();
        for pool in &mut desired {
            if let Some((targets, role)) = self.targets.zip(pool.component.pool_role()) {
                pool.replicas = targets[role];
            }
        }
        desired
    }

    pub(crate) fn status(&self, mode: ScalingMode) -> ScalingStatus {
        ScalingStatus {
            mode,
            decisions: self.inner.decisions.clone(),
        }
    }

    /// Notes which pods are degraded.
    pub(crate) fn note_degraded(&self, observed: &mut Observed) {
        for pod in &mut observed.pods {
            let uid = pod.name.clone();
            self.inner.note_degraded(pod, &uid);
        }
    }

    /// Looks and decides, if it is time.
    pub(crate) async fn pass(&mut self, fleet: &Fleet, target: &Target, observed: &Observed) {
        if !target.spec().scales_by_load() {
            *self = Self::new();
            return;
        }
        let spec = ScalingSpec::of(target.spec());
        if !self.inner.is_due() {
            return;
        }
        let is_router = |entry: &Entry| entry.component == Component::Router;
        let agents = sources(fleet, |entry| {
            !is_router(entry) && entry.process.state().phase == Phase::Ready
        });
        let routers = sources(fleet, is_router);
        let router_queue = self.inner.look(&fleet.client, &agents, &routers).await;
        let replicas = observed.pods.iter();
        let replicas = replicas
            .filter_map(|pod| self.replica(fleet, pod))
            .collect();
        let desired = self.desired(target);
        let observations = scaler::observations(&desired, observed, replicas, router_queue, None);
        let decision = self.inner.decide(&observations, &spec);
        if decision.change().is_some() {
            fleet.console.progress(&decision.message());
        }
        self.targets = match spec.mode {
            ScalingMode::Auto => Some(decision.to),
            ScalingMode::Advise | ScalingMode::External | ScalingMode::Off => None,
        };
    }

    fn replica(&self, fleet: &Fleet, pod: &ObservedPod) -> Option<Replica> {
        let entry = fleet.entries.get(&pod.name);
        let phase = entry.map(|entry| entry.process.state().phase);
        let state = match (&pod.leaving, pod.serves()) {
            (Some(_), _) => ReplicaState::Leaving,
            (None, true) => ReplicaState::Serving,
            (None, false) if phase == Some(Phase::BackOff) => ReplicaState::Unschedulable,
            (None, false) => ReplicaState::Starting,
        };
        Some(Replica {
            // A name is of one incarnation.
            uid: pod.name.clone(),
            role: pod.component.pool_role()?,
            revision: pod.revision.clone(),
            state,
            sample: self.inner.sample(&pod.name),
        })
    }
}

/// Those of the fleet's processes; a name is of one incarnation.
fn sources(fleet: &Fleet, is_meant: impl Fn(&Entry) -> bool) -> Vec<Source> {
    let meant = fleet.entries.iter().filter(|(_, entry)| is_meant(entry));
    meant
        .map(|(name, entry)| Source {
            uid: name.clone(),
            url: entry.url.clone(),
        })
        .collect()
}
