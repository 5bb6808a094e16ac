//! What scales one deployment, in a cluster or on this machine: it asks agents and routers for their load, decides, and
//! remembers. Its caller says whom to ask, and carries out what was decided.

use crate::controller::autoscale::observations::{Load, Replica};
use crate::controller::autoscale::sample::Sample;
use crate::controller::autoscale::{Decision, History, Observations, ScalingSpec, decide};
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

/// Whom to ask, and how far the replicas are.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) agents: Vec<Source>,
    pub(crate) routers: Vec<Source>,
    /// Without samples, which looking adds.
    pub(crate) replicas: Vec<Replica>,
    /// When nodes last came, came back or grew.
    pub(crate) room_came: Option<Instant>,
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

    /// Asks all of them at the same time.
    pub(crate) async fn look(&mut self, client: &HttpClient, sources: Sources) -> Load {
        let Sources {
            agents,
            routers,
            mut replicas,
            room_came,
        } = sources;
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
        let known: BTreeSet<&String> = agents.iter().chain(&routers).map(|who| &who.uid).collect();
        self.samples.retain(|uid, _| known.contains(uid));
        self.silent.retain(|uid, _| known.contains(uid));
        for replica in &mut replicas {
            replica.sample = self.samples.get(&replica.uid).copied();
        }
        Load {
            replicas,
            router_queue: queues.into_iter().sum(),
            // One before the first look changes nothing that is known.
            room_came: room_came.and_then(|at| at.checked_duration_since(epoch)),
            at: epoch.elapsed(),
        }
    }

    /// Whether an agent last said that its GPU is degraded.
    pub(crate) fn is_degraded(&self, uid: &str) -> bool {
        self.samples.get(uid).is_some_and(|sample| sample.degraded)
    }

    /// Decides at a time on the clock of [`Load`], and remembers what says something.
    pub(crate) fn decide(
        &mut self,
        observations: &Observations,
        spec: &ScalingSpec,
        at: Duration,
        now: Timestamp,
    ) -> Decision {
        let history = std::mem::take(&mut self.history);
        let (decision, history) = decide(observations, history, spec, at);
        self.history = history;
        for (uid, why) in &decision.refused {
            tracing::warn!(uid, %why, "rejected a load report");
        }
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
