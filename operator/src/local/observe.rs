//! Observes the deployment on this machine: its processes, what each router knows, how far drains are.

use super::fleet::{Entry, Fleet};
use super::process::Phase;
use crate::controller::build::component::Component;
use crate::controller::plan::{Leaving, Observed, ObservedPod, ObservedRouter};
use http::Method;
use pd_crds::node_disposition::NodeDisposition;
use pd_protocol::workers::{DrainState, DrainStatus, WorkerList};
use std::time::Duration;
use tokio::time::Instant;

/// Longest wait for an admin API on loopback.
pub(crate) const ADMIN_LIMIT: Duration = Duration::from_secs(2);

/// Takes in what happened since the last reconcile and says how things stand.
pub(crate) async fn observe(fleet: &mut Fleet) -> Observed {
    fleet.forget_ended();
    let routers = observe_routers(fleet).await;
    for (name, entry) in &mut fleet.entries {
        let admitted = !routers.is_empty() && routers.iter().all(|router| router.sends_to(name));
        entry.routable |= admitted || entry.component == Component::Router;
    }
    let leaving: Vec<String> = fleet.leaving().map(|(name, _)| name.clone()).collect();
    for name in leaving {
        observe_drain(fleet, &name).await;
    }
    let now = Instant::now();
    let pods = fleet
        .entries
        .iter()
        .map(|(name, entry)| observe_pod(name, entry, now))
        .collect();
    Observed {
        pods,
        routers,
        ..Observed::default()
    }
}

fn observe_pod(name: &str, entry: &Entry, now: Instant) -> ObservedPod {
    let leaving = entry.leaving.as_ref().map(|leaving| Leaving {
        drain_asked: leaving.drain_asked,
        drained: leaving.drained,
        unanswered: false,
        by_routers: entry.admin_url.is_none(),
        past_deadline: now >= leaving.deadline,
        terminated: leaving.terminated,
    });
    ObservedPod {
        name: name.to_owned(),
        component: entry.component,
        slot: entry.slot,
        revision: entry.revision.clone(),
        ready: entry.process.state().phase == Phase::Ready,
        admitted: entry.routable,
        disposition: NodeDisposition::Keep,
        degraded: false,
        gathers: false,
        leaving,
    }
}

/// Asks every router that has started for its workers.
async fn observe_routers(fleet: &Fleet) -> Vec<ObservedRouter> {
    let mut routers = Vec::new();
    for (name, entry) in &fleet.entries {
        let started = entry.process.state().started && entry.leaving.is_none();
        if entry.component != Component::Router || !started {
            continue;
        }
        let Some(admin_url) = &entry.admin_url else {
            continue;
        };
        let url = format!("{admin_url}/workers");
        let list = fleet
            .client
            .call::<WorkerList>(Method::GET, &url, None, ADMIN_LIMIT)
            .await;
        let workers = list.inspect_err(|error| tracing::warn!(%error, "router does not answer"));
        routers.push(ObservedRouter {
            pod: name.clone(),
            workers: workers.ok().map(|list| list.workers),
        });
    }
    routers
}

/// Asks a leaving worker how far it is. A process that never was ready has nothing in flight; one
/// whose admin API is broken gets SIGTERM, upon which it drains by itself.
async fn observe_drain(fleet: &mut Fleet, name: &str) {
    let Some(entry) = fleet.entries.get(name) else {
        return;
    };
    let running = entry.process.state().started;
    let asked = entry
        .leaving
        .as_ref()
        .is_some_and(|leaving| leaving.drain_asked);
    let drained = if !running {
        true
    } else if let (true, Some(admin_url)) = (asked, &entry.admin_url) {
        let url = format!("{admin_url}/drain");
        let status = fleet
            .client
            .call::<DrainStatus>(Method::GET, &url, None, ADMIN_LIMIT)
            .await;
        match status {
            Ok(DrainStatus { state, in_flight }) => {
                tracing::debug!(pod = name, ?state, in_flight, "draining");
                state == DrainState::Drained
            }
            Err(error) => {
                tracing::debug!(pod = name, %error, "cannot read the progress of a drain");
                true
            }
        }
    } else {
        false
    };
    if let Some(leaving) = fleet
        .entries
        .get_mut(name)
        .and_then(|entry| entry.leaving.as_mut())
    {
        leaving.drained |= drained;
    }
}
