//! Sizes the pools of the deployment on this machine: looks at agents and routers once a second,
//! decides, and remembers.

use super::fleet::Fleet;
use super::process::Phase;
use super::status::ScalingStatus;
use super::target::Target;
use crate::controller::autoscale::observations::{Replica, ReplicaState};
use crate::controller::autoscale::per_role::PerRole;
use crate::controller::autoscale::sample::Sample;
use crate::controller::autoscale::{Decision, History, Observations, ScalingSpec, decide};
use crate::controller::build::component::Component;
use crate::controller::plan::{Desired, Observed, ObservedPod};
use crate::scrape::{self, ScrapeError};
use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use pd_crds::scaling::ScalingMode;
use pd_crds::status;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Pause between two looks.
const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Scaler {
    /// Samples and decisions are dated by the time since.
    epoch: Instant,
    due: Instant,
    /// What was decided last; nothing where the spec says how many.
    targets: Option<PerRole<u32>>,
    history: History,
    /// The newest of each pod that was believed.
    samples: BTreeMap<String, Sample>,
    /// Why a pod tells nothing now.
    silent: BTreeMap<String, String>,
    decisions: Vec<status::Decision>,
}

// === impl Scaler ===

impl Scaler {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            epoch: now,
            due: now,
            targets: None,
            history: History::default(),
            samples: BTreeMap::new(),
            silent: BTreeMap::new(),
            decisions: Vec::new(),
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
            decisions: self.decisions.clone(),
        }
    }

    /// Looks and decides, if it is time.
    pub(crate) async fn pass(&mut self, fleet: &Fleet, target: &Target, observed: &Observed) {
        let spec = ScalingSpec::of(target.spec());
        match spec.mode {
            ScalingMode::Auto | ScalingMode::Advise => {}
            ScalingMode::External | ScalingMode::Off => {
                self.targets = None;
                self.history = History::default();
                return;
            }
        }
        if Instant::now() < self.due {
            return;
        }
        self.due = Instant::now() + INTERVAL;
        self.scrape_agents(fleet).await;
        let router_queue = self.scrape_routers(fleet).await;
        let desired = self.desired(target);
        let observations = self.observe(fleet, &desired, observed, router_queue);
        let history = std::mem::take(&mut self.history);
        let (decision, history) = decide(&observations, history, &spec, self.epoch.elapsed());
        self.history = history;
        self.tell(fleet, &decision);
        self.targets = match spec.mode {
            ScalingMode::Auto => Some(decision.to),
            ScalingMode::Advise | ScalingMode::External | ScalingMode::Off => None,
        };
    }

    async fn scrape_agents(&mut self, fleet: &Fleet) {
        let entries = fleet.entries.iter();
        let answering = entries.filter(|(_, entry)| {
            entry.component != Component::Router && entry.process.state().phase == Phase::Ready
        });
        let scrapes = answering.map(async |(name, entry)| {
            let sample = scrape::agent(&fleet.client, &entry.url, self.epoch).await;
            (name, sample)
        });
        for (pod, sample) in join_all(scrapes).await {
            if let Some(sample) = self.heard(pod, sample) {
                self.samples.insert(pod.clone(), sample);
            }
        }
        self.samples
            .retain(|pod, _| fleet.entries.contains_key(pod));
        self.silent.retain(|pod, _| fleet.entries.contains_key(pod));
    }

    /// Requests that wait in all routers; nothing if one does not say.
    async fn scrape_routers(&mut self, fleet: &Fleet) -> Option<f64> {
        let entries = fleet.entries.iter();
        let routers = entries.filter(|(_, entry)| entry.component == Component::Router);
        let scrapes = routers
            .map(async |(name, entry)| (name, scrape::router(&fleet.client, &entry.url).await));
        let queues = join_all(scrapes).await;
        let queues: Vec<Option<f64>> = queues
            .into_iter()
            .map(|(pod, queue)| self.heard(pod, queue))
            .collect();
        queues.into_iter().sum()
    }

    /// What a pod said; or why it said nothing goes to the log, once.
    fn heard<T>(&mut self, pod: &str, answer: Result<T, ScrapeError>) -> Option<T> {
        match answer {
            Ok(heard) => {
                self.silent.remove(pod);
                Some(heard)
            }
            Err(error) => {
                let why = error.to_string();
                if self.silent.insert(pod.to_owned(), why.clone()).as_ref() != Some(&why) {
                    tracing::warn!(pod, why, "tells nothing of its load");
                }
                None
            }
        }
    }

    fn observe(
        &self,
        fleet: &Fleet,
        desired: &[Desired],
        observed: &Observed,
        router_queue: Option<f64>,
    ) -> Observations {
        let mut targets = PerRole::default();
        for pool in desired {
            if let Some(role) = pool.component.pool_role() {
                targets[role] = pool.replicas;
            }
        }
        let is_old = |pod: &ObservedPod| {
            let of_pool = |pool: &&Desired| pool.component == pod.component;
            let wanted = desired.iter().find(of_pool);
            wanted.is_some_and(|pool| pool.revision != pod.revision)
        };
        let pods = || observed.pods.iter();
        Observations {
            targets,
            replicas: pods().filter_map(|pod| self.replica(fleet, pod)).collect(),
            router_queue,
            rollout_unready: pods().any(is_old),
        }
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
            sample: self.samples.get(&pod.name).copied(),
        })
    }

    fn tell(&mut self, fleet: &Fleet, decision: &Decision) {
        for (pod, why) in &decision.refused {
            tracing::warn!(pod, %why, "what it says of its load is not believed");
        }
        if decision.change().is_some() {
            fleet.console.progress(&decision.message());
        }
        let now = Timestamp::now();
        let time = Timestamp::from_second(now.as_second()).unwrap_or(now);
        decision.tell(&mut self.decisions, Time(time));
    }
}
