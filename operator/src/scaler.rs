//! What scales one deployment, in a cluster or on this machine: it looks at agents and routers,
//! decides, and remembers. Who are to be asked, and what comes of a decision, its caller says.

use crate::controller::autoscale::observations::Replica;
use crate::controller::autoscale::per_role::PerRole;
use crate::controller::autoscale::sample::Sample;
use crate::controller::autoscale::{Decision, History, Observations, ScalingSpec, decide};
use crate::controller::plan::{Desired, Observed, ObservedPod};
use crate::http_client::HttpClient;
use crate::scrape::{self, ScrapeError};
use futures::future::join_all;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use pd_crds::status;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Scaler {
    /// Samples and decisions are dated by the time since.
    epoch: Instant,
    due: Instant,
    interval: Duration,
    history: History,
    /// The newest of each agent that was believed, by UID.
    samples: BTreeMap<String, Sample>,
    /// Why a source reports nothing now.
    silent: BTreeMap<String, String>,
    /// The last that said something.
    pub(crate) decisions: Vec<status::Decision>,
}

/// A process with `/metrics`.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Another process of the same name is another source.
    pub(crate) uid: String,
    pub(crate) url: String,
}

// === impl Scaler ===

impl Scaler {
    /// Looks every `interval`; goes on from what a status remembers.
    pub(crate) fn new(interval: Duration, decisions: Vec<status::Decision>) -> Self {
        let now = Instant::now();
        Self {
            epoch: now,
            due: now,
            interval,
            history: History::default(),
            samples: BTreeMap::new(),
            silent: BTreeMap::new(),
            decisions,
        }
    }

    /// Whether it is time to look again; if so, the next time is set.
    pub(crate) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now >= self.due;
        if is_due {
            self.due = now + self.interval;
        }
        is_due
    }

    /// Asks everybody at once; gives the requests that wait in all routers, nothing if one does not
    /// say.
    pub(crate) async fn look(
        &mut self,
        client: &HttpClient,
        agents: &[Source],
        routers: &[Source],
    ) -> Option<f64> {
        let epoch = self.epoch;
        let scrapes = agents
            .iter()
            .map(async |agent| scrape::agent(client, &agent.url, epoch).await);
        for (agent, sample) in agents.iter().zip(join_all(scrapes).await) {
            if let Some(sample) = self.heard(agent, sample) {
                let before = self.samples.insert(agent.uid.clone(), sample);
                if sample.degraded && !before.is_some_and(|before| before.degraded) {
                    tracing::warn!(url = agent.url, "GPU is degraded");
                }
            }
        }
        let scrapes = routers
            .iter()
            .map(async |router| scrape::router(client, &router.url).await);
        let queues = join_all(scrapes).await;
        let queues: Vec<Option<f64>> = routers
            .iter()
            .zip(queues)
            .map(|(router, queue)| self.heard(router, queue))
            .collect();
        let known: BTreeSet<&String> = agents.iter().chain(routers).map(|who| &who.uid).collect();
        self.samples.retain(|uid, _| known.contains(uid));
        self.silent.retain(|uid, _| known.contains(uid));
        queues.into_iter().sum()
    }

    /// A time on the clock that decisions are dated by; nothing for one before it began.
    pub(crate) fn date(&self, at: Instant) -> Option<Duration> {
        at.checked_duration_since(self.epoch)
    }

    pub(crate) fn sample(&self, uid: &str) -> Option<Sample> {
        self.samples.get(uid).copied()
    }

    /// Notes on a pod what its agent last said of its GPUs.
    pub(crate) fn note_degraded(&self, pod: &mut ObservedPod, uid: &str) {
        pod.degraded = self.sample(uid).is_some_and(|sample| sample.degraded);
    }

    /// Decides, and remembers what says something.
    pub(crate) fn decide(&mut self, observations: &Observations, spec: &ScalingSpec) -> Decision {
        let history = std::mem::take(&mut self.history);
        let (decision, history) = decide(observations, history, spec, self.epoch.elapsed());
        self.history = history;
        for (uid, why) in &decision.refused {
            tracing::warn!(uid, %why, "rejected a load report");
        }
        let now = Timestamp::now();
        let time = Timestamp::from_second(now.as_second()).unwrap_or(now);
        decision.append_to(&mut self.decisions, Time(time));
        decision
    }

    /// What a source reported; why it reported nothing goes to the log, once.
    fn heard<T>(&mut self, who: &Source, answer: Result<T, ScrapeError>) -> Option<T> {
        match answer {
            Ok(heard) => {
                self.silent.remove(&who.uid);
                Some(heard)
            }
            Err(error) => {
                let why = error.to_string();
                if self.silent.insert(who.uid.clone(), why.clone()).as_ref() != Some(&why) {
                    tracing::warn!(url = who.url, why, "no load report");
                }
                None
            }
        }
    }
}

/// What is known of a deployment's pools, without its replicas.
pub(crate) fn observations(
    desired: &[Desired],
    observed: &Observed,
    replicas: Vec<Replica>,
    router_queue: Option<f64>,
    room_came: Option<Duration>,
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
    Observations {
        targets,
        replicas,
        router_queue,
        rollout_unready: observed.pods.iter().any(is_old),
        room_came,
    }
}
