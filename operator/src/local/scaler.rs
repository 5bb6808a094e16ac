//! Sizes the pools of the deployment on this machine.

use super::fleet::{Entry, Fleet};
use super::process::Phase;
use super::status::ScalingStatus;
use super::target::Target;
use crate::controller::autoscale::Decision;
use crate::controller::autoscale::observations::{Replica, ReplicaState};
use crate::controller::autoscale::per_role::PerRole;
use crate::controller::build::component::Component;
use crate::controller::plan::{Desired, Observed, ObservedPod};
use crate::scaler::{self, Source, Sources};
use k8s_openapi::jiff::Timestamp;
use pd_crds::PdDeploymentSpec;
use pd_crds::scaling::ScalingMode;
use std::time::Duration;

/// Between two scrapes.
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

    /// Adds the load to what was observed, if it is time.
    pub(crate) async fn observe(
        &mut self,
        fleet: &Fleet,
        spec: &PdDeploymentSpec,
        observed: &mut Observed,
    ) {
        if !spec.scales_by_load() {
            *self = Self::new();
            return;
        }
        if self.inner.is_due() {
            let replicas = observed.pods.iter();
            let sources = Sources {
                agents: sources(fleet, |entry| {
                    !is_router(entry) && entry.process.state().phase == Phase::Ready
                }),
                routers: sources(fleet, is_router),
                replicas: replicas.filter_map(|pod| replica(fleet, pod)).collect(),
            };
            observed.load = Some(self.inner.scrape(&fleet.client, sources).await);
        }
        for pod in &mut observed.pods {
            pod.degraded = self.inner.is_degraded(&pod.name);
        }
    }

    /// What decides by that load.
    pub(crate) fn inner(&mut self) -> &mut scaler::Scaler {
        &mut self.inner
    }

    /// Takes over the sizes that were decided.
    pub(crate) fn follow(&mut self, decision: &Decision) {
        self.inner.record(decision, Timestamp::now());
        self.targets = match decision.mode {
            ScalingMode::Auto => Some(decision.to),
            ScalingMode::Advise | ScalingMode::External | ScalingMode::Off => None,
        };
    }
}

fn is_router(entry: &Entry) -> bool {
    entry.component == Component::Router
}

fn replica(fleet: &Fleet, pod: &ObservedPod) -> Option<Replica> {
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
        sample: None,
    })
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
