//! What is known of a deployment before anyone is asked: what is carried out of its spec, and what the watches reported.

use super::admin_token::AdminToken;
use super::apply::Writer;
use super::effective_spec::EffectiveSpec;
use super::facts::{PodFacts, all_facts};
use super::gangs::{Gangs, gatherings};
use crate::controller::autoscale::per_role::PerRole;
use crate::controller::build::component::Component;
use crate::controller::build::gang::Gang;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use pd_crds::stuck::{Cause, Stuck};
use pd_crds::{PdDeployment, PdDeploymentSpec, PdPool};
use std::sync::Arc;

/// A deployment at one time. Everything that a reconcile decides, it decides from one of these and from what was
/// observed.
pub(crate) struct Snapshot<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) effective: &'a EffectiveSpec,
    /// Since when the admin token holds; nothing if it always did, as far as is known.
    pub(crate) token_since: Option<Timestamp>,
    /// Of workers and routers.
    pub(crate) pods: Vec<PodFacts>,
    /// As they are stored; nothing for one that is to be made.
    pub(crate) pools: PerRole<Option<Arc<PdPool>>>,
    pub(crate) gangs: Gangs,
    /// Of all nodes, looked at only where a pod waits for room; nothing where nodes are not watched.
    pub(crate) cluster_gpus: Option<i64>,
    /// Whether nodes are watched, so that workers can be moved off them.
    pub(crate) watches_nodes: bool,
    pub(crate) now: Timestamp,
}

// === impl Snapshot ===

impl<'a> Snapshot<'a> {
    pub(crate) fn read(
        writer: &Writer<'a>,
        effective: &'a EffectiveSpec,
        token: &AdminToken,
        now: Timestamp,
    ) -> Self {
        let index = &writer.context.index;
        let resources = &effective.resources;
        let pods = pods(writer, Some(token));
        let lacks_room = |stuck: Stuck| stuck.cause == Cause::Unschedulable;
        let waits = pods
            .iter()
            .any(|facts| facts.stuck().is_some_and(lacks_room));
        let memories = &writer.context.memories;
        let released = memories
            .read(&writer.uid(), |memory| memory.released)
            .flatten();
        let gangs = Gangs::of(&pods, released, || {
            let mut all = Vec::new();
            index
                .pods
                .each(|pod| all.extend(Gang::of(&pod.metadata).map(|_| pod.clone())));
            gatherings(all.iter())
        });
        let stored = |role| {
            let name = resources
                .pool(role)
                .object(effective.deployment())
                .name_any();
            index.pools.find(&writer.key(), &name)
        };
        Self {
            namespace: writer.namespace,
            effective,
            token_since: token.since,
            cluster_gpus: index.nodes.gpus().filter(|_| waits),
            pods,
            gangs,
            pools: PerRole::of(stored),
            watches_nodes: index.nodes.is_watched(),
            now,
        }
    }

    pub(crate) fn deployment(&self) -> &'a PdDeployment {
        self.effective.deployment()
    }

    pub(crate) fn spec(&self) -> &'a PdDeploymentSpec {
        &self.deployment().spec
    }

    pub(crate) fn routers(&self) -> impl Iterator<Item = &PodFacts> {
        let is_router = |facts: &&PodFacts| facts.component == Component::Router;
        self.pods.iter().filter(is_router)
    }

    /// When something of it last went forward.
    pub(crate) fn progressed(&self) -> Option<Timestamp> {
        self.pods.iter().filter_map(PodFacts::last_change).max()
    }

    /// Routers as the spec says; where it leaves the number to others, those that there are.
    pub(crate) fn routers_wanted(&self) -> i32 {
        let existing = || {
            let stays = |facts: &&PodFacts| facts.pod.metadata.deletion_timestamp.is_none();
            let routers = self.routers().filter(stays).count();
            i32::try_from(routers).unwrap_or(i32::MAX).max(1)
        };
        self.spec().router.replicas.unwrap_or_else(existing)
    }
}

/// What a deployment's pods say of themselves. Without the token, none is known to hold another one.
pub(crate) fn pods(writer: &Writer<'_>, token: Option<&AdminToken>) -> Vec<PodFacts> {
    let index = &writer.context.index;
    let pods = index.pods.of(&writer.key());
    let mut pods = all_facts(writer.deployment, pods, &index.nodes);
    let since = token.and_then(|token| token.since);
    for facts in &mut pods {
        let began = facts.pod.creation_timestamp().map(|time| time.0);
        facts.holds_old_token = since.is_some() && began < since;
    }
    pods
}

#[cfg(test)]
pub(crate) mod fixture;
