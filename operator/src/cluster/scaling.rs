//! Sizes the pools of a deployment by what its agents and routers say.

use super::apply::Writer;
use super::error::ApplyError;
use super::facts::PodFacts;
use crate::controller::autoscale::observations::{Replica, ReplicaState};
use crate::controller::autoscale::per_role::PerRole;
use crate::controller::autoscale::{Decision, ScalingSpec};
use crate::controller::build::component::Component;
use crate::controller::plan::{Desired, Observed};
use crate::scaler::{self, Scaler, Source};
use kube::ResourceExt;
use kube::runtime::events::{Event, EventType};
use pd_crds::PdDeploymentSpec;
use pd_crds::status;
use pd_crds::stuck::Cause;
use pd_protocol::ports;
use std::time::Duration;

/// Pause between two looks at a deployment: three of them, and what an agent said is old.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

// === impl Writer ===

impl Writer<'_> {
    /// Notes which pods are degraded.
    pub(crate) fn note_degraded(&self, facts: &[PodFacts], observed: &mut Observed) {
        self.context.memories.read(&self.uid(), |memory| {
            let Some(scaler) = &memory.scaler else {
                return;
            };
            for pod in &mut observed.pods {
                let mut facts = facts.iter();
                let facts = facts.find(|facts| facts.pod.name_any() == pod.name);
                if let Some(uid) = facts.and_then(|facts| facts.pod.uid()) {
                    scaler.note_degraded(pod, &uid);
                }
            }
        });
    }

    /// Looks and decides, if it is time; returns the decisions for the status.
    pub(crate) async fn scale_by_load(
        &self,
        spec: &PdDeploymentSpec,
        desired: &[Desired],
        facts: &[PodFacts],
        observed: &Observed,
    ) -> Result<Vec<status::Decision>, ApplyError> {
        let uid = self.uid();
        // No other task reconciles this deployment meanwhile.
        let known = self
            .context
            .memories
            .update(&uid, |memory| memory.scaler.take());
        if !spec.scales_by_load() {
            return Ok(Vec::new());
        }
        let mut scaler = known.unwrap_or_else(|| {
            let before = self.deployment.status.as_ref();
            let decisions = before.map(|status| status.decisions.clone());
            Scaler::new(INTERVAL, decisions.unwrap_or_default())
        });
        let mut outcome = Ok(());
        if scaler.is_due() && !desired.is_empty() {
            let decision = self
                .scrape_and_decide(&mut scaler, spec, desired, facts, observed)
                .await;
            outcome = self.carry_out(&decision).await;
        }
        let decisions = scaler.decisions.clone();
        let memories = &self.context.memories;
        memories.update(&uid, |memory| memory.scaler = Some(scaler));
        outcome.map(|()| decisions)
    }

    async fn scrape_and_decide(
        &self,
        scaler: &mut Scaler,
        spec: &PdDeploymentSpec,
        desired: &[Desired],
        facts: &[PodFacts],
        observed: &Observed,
    ) -> Decision {
        let router_port = u16::try_from(spec.router.metrics_port()).unwrap_or(ports::HTTP);
        let ready = facts.iter().filter(|facts| facts.ready());
        let (routers, agents): (Vec<&PodFacts>, Vec<&PodFacts>) =
            ready.partition(|facts| facts.component == Component::Router);
        let agents = agents.into_iter();
        let agents: Vec<Source> = agents
            .filter_map(|facts| source(facts, facts.ports().http))
            .collect();
        let routers = routers.into_iter();
        let routers: Vec<Source> = routers
            .filter_map(|facts| source(facts, router_port))
            .collect();
        let client = &self.context.scrape_client;
        let router_queue = scaler.look(client, &agents, &routers).await;
        let replicas = facts
            .iter()
            .filter_map(|facts| replica(facts, scaler))
            .collect();
        let room_came = self.context.nodes.room_came();
        let room_came = room_came.and_then(|at| scaler.date(at));
        let observations =
            scaler::observations(desired, observed, replicas, router_queue, room_came);
        scaler.decide(&observations, &ScalingSpec::of(spec))
    }

    async fn carry_out(&self, decision: &Decision) -> Result<(), ApplyError> {
        self.context.metrics.decided(decision);
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
                let pool = component.object_name(self.deployment);
                self.scale(&pool, after).await?;
            }
        }
        let event = Event {
            type_: EventType::Normal,
            reason: "Scaled".to_owned(),
            note: Some(decision.message()),
            action: "Scale".to_owned(),
            secondary: None,
        };
        self.publish(&event).await;
        Ok(())
    }
}

fn source(facts: &PodFacts, port: u16) -> Option<Source> {
    Some(Source {
        uid: facts.pod.uid()?,
        url: facts.url(port)?,
    })
}

fn replica(facts: &PodFacts, scaler: &Scaler) -> Option<Replica> {
    let uid = facts.pod.uid()?;
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
        role: facts.component.pool_role()?,
        revision: facts.revision(),
        state,
        sample: scaler.sample(&uid),
        uid,
    })
}
