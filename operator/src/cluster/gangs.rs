//! Gangs of a deployment: which pods are made as one, and when one gives back nodes that it cannot use.
//!
//! A scheduler that places gangs gives one all of its nodes or none. Any other places pods one by one, and two gangs
//! that each got half of what is left would wait for each other forever. So a gang keeps nodes for
//! `spec.scheduling.releaseAfterSeconds` while no node has room for the rest of it, and the eldest of those that wait
//! twice as long, so that what the others give back reaches it; one that gave back waits longer each time.

mod placing;

use super::facts::{PodFacts, is_placed};
use super::snapshot::Snapshot;
use crate::controller::autoscale::per_role::ROLES;
use crate::controller::build::component::Component;
use crate::controller::build::gang::Gang;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use pd_crds::PoolRole;
use pd_crds::node_disposition::NodeDisposition;
use pd_crds::pod::Pod;
use pd_crds::stuck::{Cause, stuck};
use pd_protocol::labels;
use placing::to_move_up;
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) use placing::{Placing, placing};

/// How often the time is doubled for which a gang waits that gave back its nodes.
const DOUBLINGS_MAX: u32 = 3;

/// A gang that has not got all of its nodes yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gathering {
    pub(crate) gang: Gang,
    /// Pods of it that there are.
    pub(crate) members: u32,
    /// Those that have a node.
    pub(crate) placed: u32,
    /// When its first pod was made.
    began: Timestamp,
    /// When its last pod was made, or got a node.
    since: Timestamp,
    /// No node has room for one of its pods.
    is_refused: bool,
}

/// That a gang gave back its nodes, and how often in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Released {
    at: Timestamp,
    times: u32,
    placed: u32,
    size: u32,
    /// Of the spec that it was made for; another one is tried at once.
    generation: Option<i64>,
}

/// How a deployment's gangs stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gangs {
    pub(crate) gathering: Vec<Gathering>,
    /// Name of the eldest of all deployments' that are half placed.
    pub(crate) eldest: Option<String>,
    pub(crate) released: Option<Released>,
}

/// The gangs among pods that have not got all of their nodes yet.
pub(crate) fn gatherings<'a>(pods: impl Iterator<Item = &'a Pod>) -> Vec<Gathering> {
    let mut all: BTreeMap<String, (Gathering, bool)> = BTreeMap::new();
    for pod in pods {
        let Some(gang) = Gang::of(&pod.metadata).filter(|_| stays(pod)) else {
            continue;
        };
        let made = pod.creation_timestamp().map(|time| time.0);
        let made = made.unwrap_or(Timestamp::UNIX_EPOCH);
        let key = format!("{}/{}", pod.namespace().unwrap_or_default(), gang.name);
        let (gathering, was_whole) = all.entry(key).or_insert_with(|| {
            let empty = Gathering {
                gang,
                members: 0,
                placed: 0,
                began: made,
                since: made,
                is_refused: false,
            };
            (empty, false)
        });
        let placed_at = true_since(pod, "PodScheduled");
        gathering.members += 1;
        gathering.placed += u32::from(is_placed(pod));
        gathering.began = gathering.began.min(made);
        gathering.since = gathering.since.max(made).max(placed_at.unwrap_or(made));
        gathering.is_refused |= stuck(pod).is_some_and(|it| it.cause == Cause::Unschedulable);
        *was_whole |= pod.labels().contains_key(labels::GANG_WHOLE);
    }
    let all = all.into_values();
    let gather = all.filter(|(it, was_whole)| !was_whole && it.placed < it.gang.size);
    gather.map(|(it, _)| it).collect()
}

fn stays(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none()
        && !pod.annotations().contains_key(labels::LEAVING_SINCE)
}

fn true_since(pod: &Pod, name: &str) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let holds = conditions.find(|is| is.type_ == name && is.status == "True")?;
    let since = holds.last_transition_time.as_ref().map(|time| time.0);
    Some(since.unwrap_or(Timestamp::UNIX_EPOCH))
}

// === impl Gathering ===

impl Gathering {
    /// Whether it holds nodes that are of no use before others come, and none does.
    pub(crate) fn is_half_placed(&self) -> bool {
        self.placed > 0 && self.is_refused
    }
}

// === impl Released ===

impl Released {
    fn retry_at(&self, keeps: SignedDuration) -> Timestamp {
        let doubled = 1 << self.times.saturating_sub(1).min(DOUBLINGS_MAX);
        self.at.saturating_add(keeps * doubled).unwrap_or(self.at)
    }
}

// === impl Gangs ===

impl Gangs {
    /// Those of a deployment; `all` are the pods of all deployments, looked at only where one of its own is half placed.
    pub(crate) fn of(
        pods: &[PodFacts],
        released: Option<Released>,
        all: impl FnOnce() -> Vec<Gathering>,
    ) -> Self {
        let workers = pods.iter().filter(|facts| facts.is_worker());
        let gathering = gatherings(workers.flat_map(PodFacts::members).map(|pod| &**pod));
        let half_placed = gathering.iter().any(Gathering::is_half_placed);
        let all = if half_placed { all() } else { Vec::new() };
        let waiting = all.iter().filter(|it| it.is_half_placed());
        let eldest = waiting.min_by_key(|it| (it.began, &it.gang.name));
        Self {
            eldest: eldest.map(|it| it.gang.name.clone()),
            gathering,
            released,
        }
    }

    /// The first pair, while it gathers: no replica by itself is of a gang that large.
    fn first(&self, snapshot: &Snapshot<'_>) -> Option<&Gathering> {
        let mut replicas = ROLES.into_iter().flat_map(|role| of_role(snapshot, role));
        replicas.find_map(|facts| {
            let gathering = self.find(facts);
            gathering.filter(|it| it.gang.size > facts.nodes())
        })
    }

    /// Whether a replica is of a gang that has all of its nodes.
    pub(crate) fn is_whole(&self, facts: &PodFacts) -> bool {
        !facts.leaves() && Gang::of(&facts.pod.metadata).is_some() && self.find(facts).is_none()
    }

    fn find(&self, facts: &PodFacts) -> Option<&Gathering> {
        let gang = Gang::of(&facts.pod.metadata)?;
        let mut gathering = self.gathering.iter();
        gathering.find(|it| it.gang.name == gang.name)
    }
}

/// How long a gang keeps nodes that it cannot use.
fn keeps(snapshot: &Snapshot<'_>) -> SignedDuration {
    SignedDuration::from_secs(snapshot.spec().scheduling.release_after_seconds.into())
}

/// Until when no gang is made, where that is not yet.
fn waits_until(snapshot: &Snapshot<'_>, released: Option<Released>) -> Option<Timestamp> {
    let generation = snapshot.deployment().metadata.generation;
    let released = released.filter(|it| it.generation == generation)?;
    let retry_at = released.retry_at(keeps(snapshot));
    (snapshot.now < retry_at).then_some(retry_at)
}

/// Whether a replica serves, or is of a gang that has all of its nodes.
fn is_established(snapshot: &Snapshot<'_>, facts: &PodFacts) -> bool {
    let is_marked = facts.pod.labels().contains_key(labels::GANG_WHOLE);
    let gathers = snapshot.gangs.find(facts).is_some();
    is_marked || snapshot.gangs.is_whole(facts) || (facts.routable() && !gathers)
}

/// Replicas that there are, and stay.
fn of_role<'a>(snapshot: &'a Snapshot<'_>, role: PoolRole) -> impl Iterator<Item = &'a PodFacts> {
    snapshot.pods.iter().filter(move |facts| {
        facts.component == Component::from(role)
            && !facts.leaves()
            && !facts.has_ended()
            && facts.disposition != NodeDisposition::Lost
    })
}

/// Pods of the first replicas of both pools.
fn size_of_pair(snapshot: &Snapshot<'_>) -> u32 {
    let resources = &snapshot.effective.resources;
    resources.prefill.nodes + resources.decode.nodes
}

/// Replicas that give back their nodes now, and why: of gangs that hold theirs for too long, or that an edit left with
/// another size; with the first pair all that came beside it; and those for which quota is kept elsewhere.
pub(crate) fn to_release<'a>(
    snapshot: &'a Snapshot<'_>,
) -> impl Iterator<Item = (&'a PodFacts, String)> {
    let first = snapshot.gangs.first(snapshot);
    let first = first.filter(|_| !serves_beside(snapshot));
    let pair = size_of_pair(snapshot);
    let misfit = first.filter(|it| it.gang.size != pair);
    let first_is_due = first.filter(|it| is_due(snapshot, it));
    let replicas = ROLES.into_iter().flat_map(|role| of_role(snapshot, role));
    let released = replicas.filter_map(move |facts| {
        let own = snapshot.gangs.find(facts);
        if own.is_some() && own == misfit {
            let why = format!("a first pair has {pair} pods now, and not as many as its gang");
            return Some((facts, why));
        }
        let due = own.filter(|it| is_due(snapshot, it)).or(first_is_due)?;
        let Gathering { gang, placed, .. } = due;
        let why = format!(
            "only {placed} of the {} pods of gang {} have nodes, and no node has room for the others",
            gang.size, gang.name
        );
        Some((facts, why))
    });
    released.chain(to_move_up(snapshot))
}

/// Whether a replica serves, or could, that is not of the first pair: then that is as any other that finds no room.
fn serves_beside(snapshot: &Snapshot<'_>) -> bool {
    let mut replicas = ROLES.into_iter().flat_map(|role| of_role(snapshot, role));
    replicas.any(|facts| is_established(snapshot, facts))
}

fn is_due(snapshot: &Snapshot<'_>, gathering: &Gathering) -> bool {
    due(snapshot, gathering).is_some_and(|due| due <= snapshot.now)
}

/// When a gang gives back what it holds; nothing for one that waits as a whole, or whose pods get their nodes.
fn due(snapshot: &Snapshot<'_>, gathering: &Gathering) -> Option<Timestamp> {
    let is_first = snapshot.gangs.first(snapshot) == Some(gathering);
    if is_first && serves_beside(snapshot) {
        return None;
    }
    let mut beside = ROLES.into_iter().flat_map(|role| of_role(snapshot, role));
    let holds = gathering.placed > 0 || is_first && beside.any(PodFacts::has_node);
    let keeps = keeps(snapshot);
    let is_eldest = snapshot.gangs.eldest.as_ref() == Some(&gathering.gang.name);
    let keeps = if is_eldest { keeps * 2 } else { keeps };
    let due = gathering.since.saturating_add(keeps);
    due.ok().filter(|_| holds && gathering.is_refused)
}

/// What is to be remembered of nodes that were given back.
pub(crate) fn remembered(snapshot: &Snapshot<'_>) -> Option<Released> {
    let before = snapshot.gangs.released;
    let mut gathering = snapshot.gangs.gathering.iter();
    let Some(gathering) = gathering.find(|it| is_due(snapshot, it)) else {
        // Then its next one waits as if it were the first.
        let is_whole = |facts: &PodFacts| {
            !facts.leaves() && facts.pod.labels().contains_key(labels::GANG_WHOLE)
        };
        let was_whole = snapshot.pods.iter().any(is_whole);
        return before.filter(|_| !was_whole);
    };
    Some(Released {
        at: snapshot.now,
        times: before.map_or(0, |it| it.times) + 1,
        placed: gathering.placed,
        size: gathering.gang.size,
        generation: snapshot.deployment().metadata.generation,
    })
}

/// What holds a gang up, and what is done about it.
pub(crate) fn said(snapshot: &Snapshot<'_>, released: Option<Released>) -> Option<String> {
    let gathering = &snapshot.gangs.gathering;
    let due = |it| Some((it, due(snapshot, it)?));
    if let Some((it, due)) = gathering.iter().find_map(due)
        && due > snapshot.now
    {
        let Gathering { gang, placed, .. } = it;
        return Some(format!(
            "{placed} of the {} pods of gang {} have nodes, and no node has room for the others; unless room comes, \
             nodes are given back at {due:.0}",
            gang.size, gang.name
        ));
    }
    let retry_at = waits_until(snapshot, released)?;
    let Released { placed, size, .. } = released?;
    Some(format!(
        "no node had room for all {size} pods of a gang, so the nodes of {placed} were given back; it tries again at \
         {retry_at:.0}, or when the spec is edited"
    ))
}

/// When a gang is next to be looked at though no watch reports anything.
pub(crate) fn timer(snapshot: &Snapshot<'_>, released: Option<Released>) -> Option<Duration> {
    let gathering = snapshot.gangs.gathering.iter();
    let due = gathering.filter_map(|it| due(snapshot, it));
    let retry = waits_until(snapshot, released);
    let next = due.chain(retry).filter(|at| *at > snapshot.now).min()?;
    let left = Duration::try_from(next.duration_since(snapshot.now)).ok()?;
    Some(left + Duration::from_millis(100))
}

#[cfg(test)]
mod tests;
