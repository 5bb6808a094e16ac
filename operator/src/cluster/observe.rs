//! Observes one deployment on the cluster: its pods as the watch reported them ([`facts`](super::facts)), and what only
//! its processes can say: whom routers send to, how far drains and probes are, how much load there is.

use super::admin::Admin;
use super::admin_token::AdminToken;
use super::apply::Writer;
use super::facts::PodFacts;
use super::nodes::Nodes;
use super::probe::{Probed, Probes, Worker};
use super::scaling::observe_load;
use super::snapshot::Snapshot;
use crate::controller::build::component::Component;
use crate::controller::plan::{Leaving, Observed, ObservedPod, ObservedRouter};
use crate::http_client::HttpClient;
use crate::scaler::Scaler;
use futures::future::{join, join_all};
use http::Uri;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_identity::Peers;
use pd_protocol::labels;
use pd_protocol::workers::{DrainState, DrainStatus, WorkerList, WorkerState, WorkerStatus};
use std::net::IpAddr;
use std::time::Duration;

/// Between two reconciles while something is awaited that no watch reports: a router's acknowledgement, the end of a
/// drain.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// What a deployment's processes are asked with.
pub(crate) struct Clients {
    /// Nothing while there is no token: workers then drain when they are ended.
    pub(crate) admin: Option<Admin>,
    /// Of what takes no admin token: `/metrics`, and the requests of probes.
    pub(crate) http: HttpClient,
    pub(crate) probes: Probes,
}

/// Asks whom it must and says how things stand.
pub(crate) async fn observe(
    snapshot: &Snapshot<'_>,
    clients: &Clients,
    nodes: &Nodes,
    mut scaler: Option<&mut Scaler>,
) -> Observed {
    let load = async {
        let scaler = scaler.as_deref_mut()?;
        observe_load(snapshot, &clients.http, nodes, scaler).await
    };
    let pods = observe_pods(snapshot.deployment(), &snapshot.pods, clients, snapshot.now);
    let (mut observed, load) = join(pods, load).await;
    observed.load = load;
    if let Some(scaler) = scaler {
        for pod in &mut observed.pods {
            let mut facts = snapshot.pods.iter();
            let facts = facts.find(|facts| facts.pod.name_any() == pod.name);
            let uid = facts.and_then(|facts| facts.pod.uid());
            pod.degraded = uid.is_some_and(|uid| scaler.is_degraded(&uid));
        }
    }
    observed
}

/// All but the load.
pub(crate) async fn observe_pods(
    deployment: &PdDeployment,
    facts: &[PodFacts],
    clients: &Clients,
    now: Timestamp,
) -> Observed {
    let Clients {
        admin,
        http,
        probes,
    } = clients;
    let admin = admin.as_ref();
    let drain = SignedDuration::from_secs(deployment.spec.drain.timeout_seconds.into());
    let workers = || {
        facts
            .iter()
            .filter(|facts| facts.component != Component::Router)
    };
    let ask_routers = workers().any(|facts| facts.is_candidate() || facts.awaits_acknowledgement());
    let routers = facts
        .iter()
        .filter(|facts| ask_routers && facts.component == Component::Router && facts.ready())
        .map(|router| observe_router(router, admin));
    let leaving = workers().map(|facts| observe_leaving(facts, admin, now, drain));
    // At the same time: one that does not answer must not make the others wait.
    let (routers, leaving) = join(join_all(routers), join_all(leaving)).await;
    let ready: Vec<Worker> = workers()
        .filter(|facts| facts.ready() && !facts.leaves())
        .filter_map(|facts| facts.worker(&routers))
        .collect();
    let candidates = workers().filter(|facts| facts.is_candidate());
    probes.keep(&candidates.filter_map(|facts| facts.pod.uid()).collect());
    let mut unpaired = None;
    let pods = workers().zip(leaving).filter_map(|(facts, leaving)| {
        let probed = facts
            .acknowledged(&routers, &ready)
            .map(|worker| probes.probe(http, worker, &ready));
        if let Some(Probed::Failed(reason)) = &probed {
            unpaired.get_or_insert(reason.clone());
        }
        facts.observed(leaving, probed == Some(Probed::Passed))
    });
    Observed {
        pods: pods.collect(),
        routers,
        unpaired,
        load: None,
    }
}

async fn observe_router(router: &PodFacts, admin: Option<&Admin>) -> ObservedRouter {
    let list = match admin.zip(router.admin_url("/workers")) {
        Some((admin, url)) => admin
            .get::<WorkerList>(&url)
            .await
            .inspect_err(|error| tracing::warn!(%error, "router does not answer"))
            .ok(),
        None => None,
    };
    ObservedRouter {
        pod: router.pod.name_any(),
        workers: list.map(|list| list.workers),
    }
}

/// How far a pod is on its way out; nothing for one that stays.
async fn observe_leaving(
    facts: &PodFacts,
    admin: Option<&Admin>,
    now: Timestamp,
    drain: SignedDuration,
) -> Option<Leaving> {
    if facts.pod.metadata.deletion_timestamp.is_some() {
        return Some(Leaving {
            drain_asked: true,
            terminated: true,
            ..Leaving::default()
        });
    }
    if facts.has_ended() {
        return Some(Leaving {
            drained: true,
            ..Leaving::default()
        });
    }
    let since = facts.leaving_since()?;
    let admin = admin.filter(|_| facts.takes_admin_calls());
    let mut leaving = Leaving {
        past_deadline: now.duration_since(since) > drain,
        by_routers: admin.is_none(),
        ..Leaving::default()
    };
    let url = facts.admin_url("/drain").filter(|_| facts.can_answer());
    let Some(url) = url else {
        // It never served, its process has ended, or no one can wait for its requests in flight.
        leaving.drained = true;
        return Some(leaving);
    };
    let Some(admin) = admin else {
        return Some(leaving);
    };
    match admin.get::<DrainStatus>(&url).await {
        Ok(DrainStatus { state, in_flight }) => {
            tracing::debug!(pod = %facts.pod.name_any(), ?state, in_flight, "draining");
            leaving.drain_asked = state >= DrainState::Draining;
            leaving.drained = state == DrainState::Drained;
        }
        Err(error) => {
            // One that never came up has nothing in flight. Any other may be busy or frozen.
            leaving.drained = !facts.routable() && !facts.ready();
            leaving.unanswered = !leaving.drained;
            tracing::warn!(pod = %facts.pod.name_any(), %error, "cannot read the progress of a drain");
        }
    }
    Some(leaving)
}

// === impl Clients ===

impl Clients {
    pub(crate) fn of(writer: &Writer<'_>, token: Option<&AdminToken>) -> Self {
        let memories = &writer.context.memories;
        let (probes, keys, worker_key) = memories.update(&writer.uid(), |memory| {
            (
                memory.probes.clone(),
                memory.peer_keys.clone(),
                memory.worker_key.clone(),
            )
        });
        let peers = keys.map_or(Peers::Plain, |keys| keys.peers());
        Self {
            admin: token.map(|token| token.admin.clone()),
            http: HttpClient::new(
                worker_key.map_or_else(String::new, |key| key.text().to_owned()),
                peers,
            ),
            probes,
        }
    }
}

// === impl PodFacts ===

impl PodFacts {
    fn observed(&self, leaving: Option<Leaving>, admitted: bool) -> Option<ObservedPod> {
        Some(ObservedPod {
            component: self.component,
            slot: self.slot?,
            // One with an old token is of the spec; but it must be replaced like one that is not.
            revision: if self.holds_old_token {
                format!("{}-old-token", self.revision())
            } else {
                self.revision()
            },
            ready: self.ready(),
            admitted: self.routable() || admitted,
            disposition: self.disposition,
            degraded: false,
            gathers: self.gathers(),
            leaving,
            name: self.pod.name_any(),
        })
    }

    /// Whether it is to be admitted once every router sends to it.
    fn is_candidate(&self) -> bool {
        self.ready() && !self.routable() && !self.leaves()
    }

    /// A candidate that every router sends requests to, among the ready workers.
    fn acknowledged<'a>(
        &self,
        routers: &[ObservedRouter],
        ready: &'a [Worker],
    ) -> Option<&'a Worker> {
        let name = self.pod.name_any();
        let acknowledged =
            !routers.is_empty() && routers.iter().all(|router| self.is_sent_to(router));
        let mut ready = ready.iter();
        ready.find(|worker| acknowledged && self.is_candidate() && worker.name == name)
    }

    /// Whether a router sends requests to it, and not to a pod that had its name before: that had another address.
    fn is_sent_to(&self, router: &ObservedRouter) -> bool {
        let mut workers = router.workers.iter().flatten();
        workers.any(|worker| worker.state == WorkerState::Serving && self.is_registered_as(worker))
    }

    fn is_registered_as(&self, worker: &WorkerStatus) -> bool {
        worker.spec.id == self.pod.name_any()
            && address_of(&worker.spec.url).is_none_or(|ip| Some(ip) == self.ip())
    }

    /// What a probe needs of it. Its addresses are the pod's own, not those that a router reports.
    fn worker(&self, routers: &[ObservedRouter]) -> Option<Worker> {
        let mut registered = routers
            .iter()
            .flat_map(|router| router.workers.iter().flatten());
        let registered = registered.find(|worker| self.is_registered_as(worker));
        let port = self.pod.annotations().get(labels::BOOTSTRAP_PORT);
        Some(Worker {
            uid: self.pod.uid()?,
            component: self.component,
            ip: self.ip()?,
            url: self.api_url()?,
            bootstrap_port: port.and_then(|port| port.parse().ok()),
            kv_compat: registered.and_then(|worker| worker.kv_compat.clone()),
            serves: registered.is_some_and(|worker| worker.state == WorkerState::Serving),
            name: self.pod.name_any(),
        })
    }
}

/// The address in a worker's URL; nothing where that has a name.
fn address_of(url: &str) -> Option<IpAddr> {
    let url: Uri = url.parse().ok()?;
    let host = url.host()?.trim_matches(['[', ']']);
    host.parse().ok()
}

#[cfg(test)]
mod tests;
