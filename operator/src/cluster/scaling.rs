//! Sizes the pools of a deployment by what its agents and routers report.

use super::apply::Writer;
use super::error::ApplyError;
use super::facts::PodFacts;
use super::nodes::Nodes;
use super::snapshot::Snapshot;
use super::status::{STATE_SLOTS_FREE, condition};
use crate::controller::autoscale::Decision;
use crate::controller::autoscale::observations::{Load, Replica, ReplicaState};
use crate::controller::autoscale::per_role::PerRole;
use crate::controller::autoscale::slot_shortage::SlotShortage;
use crate::controller::build::component::Component;
use crate::http_client::HttpClient;
use crate::scaler::{Scaler, Source, Sources};
use kube::ResourceExt;
use kube::runtime::events::{Event, EventType};
use pd_crds::PdDeployment;
use pd_crds::stuck::Cause;
use pd_protocol::ports;
use std::time::Duration;

/// Between two scrapes of a deployment: three of them, and what an agent said is old.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// Takes a deployment's scaler from memory for one reconcile: no other task reconciles it meanwhile.
pub(crate) fn take_scaler(writer: &Writer<'_>) -> Option<Scaler> {
    let memories = &writer.context.memories;
    let known = memories.update(&writer.uid(), |memory| memory.scaler.take());
    let deployment = writer.deployment;
    let scales = deployment.spec.scales_by_load();
    scales.then(|| known.unwrap_or_else(|| new_scaler(deployment)))
}

/// One that goes on from what the status remembers.
fn new_scaler(deployment: &PdDeployment) -> Scaler {
    let status = deployment.status.as_ref();
    let decisions = status.map(|status| status.decisions.clone());
    let mut scaler = Scaler::new(INTERVAL, decisions.unwrap_or_default());
    let has_free = status.and_then(|status| condition(status, STATE_SLOTS_FREE));
    scaler.slot_shortage = SlotShortage::of(has_free.map(|it| it.status == "False"));
    scaler
}

pub(crate) fn put_scaler(writer: &Writer<'_>, scaler: Option<Scaler>) {
    let memories = &writer.context.memories;
    memories.update(&writer.uid(), |memory| memory.scaler = scaler);
}

/// Asks agents and routers for their load, if it is time and both pools exist.
pub(crate) async fn observe_load(
    snapshot: &Snapshot<'_>,
    http: &HttpClient,
    nodes: &Nodes,
    scaler: &mut Scaler,
) -> Option<Load> {
    let PerRole { prefill, decode } = &snapshot.pools;
    if prefill.is_none() || decode.is_none() || !scaler.is_due() {
        return None;
    }
    let router_port = snapshot.spec().router.metrics_port();
    let router_port = u16::try_from(router_port).unwrap_or(ports::HTTP);
    let ready = snapshot.pods.iter().filter(|facts| facts.ready());
    let (routers, agents): (Vec<&PodFacts>, Vec<&PodFacts>) =
        ready.partition(|facts| facts.component == Component::Router);
    let (agents, routers) = (agents.into_iter(), routers.into_iter());
    let agents = agents.filter_map(|facts| source(facts, facts.api_url()));
    let routers = routers.filter_map(|facts| source(facts, facts.url(router_port)));
    let sources = Sources {
        agents: agents.collect(),
        routers: routers.collect(),
        replicas: snapshot.pods.iter().filter_map(replica).collect(),
    };
    let load = scaler.scrape(http, sources).await;
    // Asked for last: room that comes meanwhile is newer than the load, and tried at once.
    let room_came = nodes.room_came().and_then(|at| scaler.date(at));
    Some(Load { room_came, ..load })
}

/// Writes the sizes that were decided.
pub(crate) async fn write_decision(
    writer: &Writer<'_>,
    decision: &Decision,
) -> Result<(), ApplyError> {
    writer.context.metrics.decided(decision);
    let Some(to) = decision.change() else {
        return Ok(());
    };
    let PerRole { prefill, decode } = to;
    let from = decision.from;
    for (component, before, after) in [
        (Component::Prefill, from.prefill, prefill),
        (Component::Decode, from.decode, decode),
    ] {
        if before != after {
            let pool = component.object_name(writer.deployment);
            writer.scale(&pool, after).await?;
        }
    }
    let event = Event {
        type_: EventType::Normal,
        reason: "Scaled".to_owned(),
        note: Some(decision.message()),
        action: "Scale".to_owned(),
        secondary: None,
    };
    writer.publish(&event).await;
    Ok(())
}

fn source(facts: &PodFacts, url: Option<String>) -> Option<Source> {
    Some(Source {
        uid: facts.pod.uid()?,
        url: url?,
    })
}

fn replica(facts: &PodFacts) -> Option<Replica> {
    let unschedulable = || {
        facts
            .stuck()
            .is_some_and(|is| is.cause == Cause::Unschedulable)
    };
    let state = if facts.leaves() || facts.has_ended() {
        ReplicaState::Leaving
    } else if facts.ready() && facts.routable() {
        ReplicaState::Serving
    } else if unschedulable() {
        ReplicaState::Unschedulable
    } else {
        ReplicaState::Starting
    };
    Some(Replica {
        uid: facts.pod.uid()?,
        role: facts.component.pool_role()?,
        revision: facts.revision(),
        state,
        sample: None,
    })
}

#[cfg(test)]
mod tests;
