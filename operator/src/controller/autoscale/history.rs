//! `History`: all that a decision remembers of those before it; a plain value, no larger than the
//! pools. A process that takes over starts with an empty one, and so shrinks nothing for a window.

use super::estimates::Estimates;
use super::observations::{Observations, Replica, ReplicaState};
use super::per_role::{PerRole, ROLES};
use super::sample::{Sample, SampleError};
use super::stabilization::Stabilization;
use pd_crds::PoolRole;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct History {
    at: Option<Duration>,
    pub(super) estimates: Estimates,
    pub(super) stabilization: Stabilization,
    revisions: PerRole<String>,
    router_queue: Option<f64>,
    /// By UID.
    seen: BTreeMap<String, Seen>,
}

/// A replica, as it was seen last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Seen {
    /// Since when it starts; nothing once it has served.
    starts_since: Option<Duration>,
    sample: Option<Sample>,
    /// Requests per second between its last two samples.
    arrivals: f64,
    /// Tokens per second that were computed, or came to the queue.
    offered: f64,
}

// === impl History ===

impl History {
    /// Learns from what is observed; returns why samples were not believed, by UID.
    pub(super) fn take_in(
        &mut self,
        observations: &Observations,
        now: Duration,
    ) -> Vec<(String, SampleError)> {
        let mut before = std::mem::take(&mut self.seen);
        for role in ROLES {
            self.follow_revision(observations, role);
        }
        let mut refused = Vec::new();
        let degraded = PerRole::of(|role| observations.degraded(role, now));
        for replica in &observations.replicas {
            let seen = before.remove(&replica.uid);
            let seen = seen.unwrap_or_else(|| Seen::first(now));
            let healthy = !degraded[replica.role].contains(&replica);
            let (seen, error) = self.follow(replica, healthy, seen, now);
            refused.extend(error.map(|error| (replica.uid.clone(), error)));
            self.seen.insert(replica.uid.clone(), seen);
        }
        self.count_arrivals(observations, now);
        self.at = Some(now);
        refused
    }

    /// A pool whose replicas all run another revision has other speeds.
    fn follow_revision(&mut self, observations: &Observations, role: PoolRole) {
        let serving =
            |replica: &&Replica| replica.role == role && replica.state == ReplicaState::Serving;
        let mut serving = observations.replicas.iter().filter(serving);
        let Some(first) = serving.next() else { return };
        if serving.any(|replica| replica.revision != first.revision) {
            return;
        }
        let known = std::mem::replace(&mut self.revisions[role], first.revision.clone());
        if !known.is_empty() && known != first.revision {
            self.estimates.forget(role);
        }
    }

    fn follow(
        &mut self,
        replica: &Replica,
        healthy: bool,
        mut seen: Seen,
        now: Duration,
    ) -> (Seen, Option<SampleError>) {
        match (replica.state, seen.starts_since) {
            // Waiting for a node is not starting.
            (ReplicaState::Unschedulable, _) => seen.starts_since = Some(now),
            (ReplicaState::Serving, Some(since)) => {
                seen.starts_since = None;
                if since < now {
                    self.estimates.started(replica.role, now - since);
                }
            }
            (ReplicaState::Starting | ReplicaState::Serving | ReplicaState::Leaving, _) => {}
        }
        let Some(sample) = replica.sample else {
            return (seen, None);
        };
        let error = match seen.sample.map(|earlier| sample.since(&earlier)) {
            Some(Ok(step)) => {
                self.estimates.learn_traffic(replica.role, &step);
                if healthy {
                    self.estimates.learn_speed(replica.role, &step);
                }
                seen.arrivals = step.grown.requests / step.seconds;
                seen.offered = (step.grown.prefill_tokens + step.queue_grown) / step.seconds;
                None
            }
            Some(Err(SampleError::NotLater)) | None => None,
            Some(Err(error)) => {
                (seen.arrivals, seen.offered) = (0.0, 0.0);
                Some(error)
            }
        };
        seen.sample = Some(sample);
        (seen, error)
    }

    /// Every request has one prefill leg. One that waits in a router has arrived, too.
    fn count_arrivals(&mut self, observations: &Observations, now: Duration) {
        let role = PoolRole::Prefill;
        let legs = observations.replicas.iter().filter(|r| r.role == role);
        let seen = legs.filter_map(|replica| self.seen.get(&replica.uid));
        let (admitted, offered) = seen.fold((0.0, 0.0), |(admitted, offered), seen| {
            (admitted + seen.arrivals, offered + seen.offered)
        });
        let queue = observations.router_queue;
        let queued_before = std::mem::replace(&mut self.router_queue, queue);
        let Some(elapsed) = self.at.and_then(|at| now.checked_sub(at)) else {
            return;
        };
        if elapsed.is_zero() {
            return;
        }
        let seconds = elapsed.as_secs_f64();
        let grown = match queued_before.zip(queue) {
            Some((before, now)) => now - before,
            None => 0.0,
        };
        let rate = (admitted + grown / seconds).max(0.0);
        let waiting = grown / seconds * self.estimates.computed_len().unwrap_or(0.0);
        let offered = (offered + waiting).max(0.0);
        let known = observations.counts(role, now).stale == 0 && queue.is_some();
        let arrivals = &mut self.estimates.arrivals;
        // A router that does not report its requests must not make demand fall.
        let (rate, offered) = if known {
            (rate, offered)
        } else {
            (
                rate.max(arrivals.rate()),
                offered.max(arrivals.tokens_per_s()),
            )
        };
        arrivals.observe(rate, offered, seconds);
    }
}

// === impl Seen ===

impl Seen {
    fn first(now: Duration) -> Self {
        Self {
            starts_since: Some(now),
            sample: None,
            arrivals: 0.0,
            offered: 0.0,
        }
    }
}
