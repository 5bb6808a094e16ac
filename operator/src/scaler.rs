//! What scales one deployment, in a cluster or on this machine: it asks agents and routers for their load, decides, and
//! remembers. Its caller says whom to ask, and carries out what was decided.

use crate::controller::autoscale::observations::{Load, Replica};
use crate::controller::autoscale::sample::Sample;
use crate::controller::autoscale::slot_shortage::SlotShortage;
use crate::controller::autoscale::{Decision, History, Observations, ScalingSpec, decide};
use crate::http_client::HttpClient;
use crate::scrape::{self, ScrapeError};
use futures::future::{join, join_all};
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
    /// The last that were carried out and said something.
    pub(crate) decisions: Vec<status::Decision>,
    pub(crate) slot_shortage: SlotShortage,
}

/// Whom to ask, and how far the replicas are.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) agents: Vec<Source>,
    pub(crate) routers: Vec<Source>,
    /// Without samples, which their answers add.
    pub(crate) replicas: Vec<Replica>,
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
    /// Asks every `interval`; goes on from what a status remembers.
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
            slot_shortage: SlotShortage::default(),
        }
    }

    /// Whether it is time to ask again; if so, the next time is set.
    pub(crate) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now >= self.due;
        if is_due {
            self.due = now + self.interval;
        }
        is_due
    }

    /// Asks all of them at the same time. The load is dated by the time before that, when `replicas` were as they are
    /// given.
    pub(crate) async fn scrape(&mut self, client: &HttpClient, sources: Sources) -> Load {
        let Sources {
            agents,
            routers,
            mut replicas,
        } = sources;
        let epoch = self.epoch;
        let at = epoch.elapsed();
        let samples = agents
            .iter()
            .map(async |agent| scrape::agent(client, &agent.url, epoch).await);
        let queues = routers
            .iter()
            .map(async |router| scrape::router(client, &router.url).await);
        let (samples, queues) = join(join_all(samples), join_all(queues)).await;
        for (agent, sample) in agents.iter().zip(samples) {
            if let Some(sample) = self.heard(agent, sample) {
                let before = self.samples.insert(agent.uid.clone(), sample);
                if sample.degraded && !before.is_some_and(|before| before.degraded) {
                    tracing::warn!(url = agent.url, "GPU is degraded");
                }
            }
        }
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
            room_came: None,
            at,
        }
    }

    /// A time on the clock of [`Load`]; nothing for one before that began, which changes nothing that is known.
    pub(crate) fn date(&self, at: Instant) -> Option<Duration> {
        at.checked_duration_since(self.epoch)
    }

    /// Whether an agent last said that its GPU is degraded.
    pub(crate) fn is_degraded(&self, uid: &str) -> bool {
        self.samples.get(uid).is_some_and(|sample| sample.degraded)
    }

    /// Decides at a time on the clock of [`Load`].
    pub(crate) fn next_decision(
        &mut self,
        observations: &Observations,
        spec: &ScalingSpec,
        at: Duration,
    ) -> Decision {
        self.slot_shortage.observe(observations, at);
        let history = std::mem::take(&mut self.history);
        let (decision, history) = decide(observations, history, spec, at);
        self.history = history;
        for (uid, why) in &decision.refused {
            tracing::warn!(uid, %why, "rejected a load report");
        }
        decision
    }

    /// Remembers a decision that was carried out, if it says something.
    pub(crate) fn record(&mut self, decision: &Decision, now: Timestamp) {
        let time = Timestamp::from_second(now.as_second()).unwrap_or(now);
        decision.append_to(&mut self.decisions, Time(time));
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
