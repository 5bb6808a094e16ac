//! Asks the processes of a deployment which keys they have. What counts is what they report, not what their Secret says:
//! kubelets bring a change after a minute or two, and each in its own time.

use super::rotation::{Process, Reported};
use crate::cluster::facts::PodFacts;
use crate::cluster::snapshot::Snapshot;
use crate::controller::build::component::Component;
use crate::http_client::HttpClient;
use futures::future::join_all;
use kube::ResourceExt;
use pd_crds::node_disposition::NodeDisposition;
use pd_identity::KeyUse;
use pd_protocol::exposition::samples;
use pd_protocol::{labels, ports};
use std::time::Duration;

/// Longest wait for an answer: one that is frozen must not hold up the reconcile.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// Of routers and of agents.
const SERIES: [&str; 2] = ["pd_router_peer_key_info", "pdserve_peer_key_info"];

/// What every process reports that may have keys: routers and workers of any revision, also while they start or leave.
pub(super) async fn ask(snapshot: &Snapshot<'_>, http: &HttpClient) -> Vec<Process> {
    let router_port = snapshot.spec().router.metrics_port();
    let router_port = u16::try_from(router_port).unwrap_or(ports::HTTP);
    let may_have_keys = snapshot.pods.iter().filter(|facts| facts.may_have_keys());
    // At the same time: one that does not answer must not make the others wait.
    let asked = may_have_keys.map(|facts| async move {
        Process {
            name: facts.pod.name_any(),
            reported: ask_one(facts, router_port, http).await,
        }
    });
    join_all(asked).await
}

async fn ask_one(facts: &PodFacts, router_port: u16, http: &HttpClient) -> Reported {
    if facts.disposition == NodeDisposition::Lost {
        return Reported::Silent("its node is lost".to_owned());
    }
    if !facts.can_answer() {
        return Reported::Starting("its program does not run yet".to_owned());
    }
    let base = match facts.component {
        Component::Router => facts.url(router_port),
        Component::Prefill | Component::Decode => facts.api_url(),
    };
    let Some(base) = base else {
        return Reported::Starting("it has no address yet".to_owned());
    };
    match http.text(&format!("{base}/metrics"), ANSWER_LIMIT).await {
        Ok(text) => read(&text),
        Err(error) if facts.ready() || facts.leaves() => Reported::Silent(error.to_string()),
        Err(error) => Reported::Starting(error.to_string()),
    }
}

/// The keys that a process's metrics name.
fn read(text: &str) -> Reported {
    let samples = samples(text).filter_map(Result::ok);
    let series = samples.filter(|sample| SERIES.contains(&sample.name));
    let keys: Vec<(String, KeyUse)> = series
        .filter_map(|sample| {
            let is_signing = sample.label("use")? == KeyUse::Signs.as_str();
            let key = if is_signing {
                KeyUse::Signs
            } else {
                KeyUse::Verifies
            };
            Some((sample.label("key_id")?.into_owned(), key))
        })
        .collect();
    if keys.is_empty() {
        let why = "its metrics name no keys, as those of earlier versions; replace it (`kubectl pd restart`)";
        return Reported::Silent(why.to_owned());
    }
    Reported::Keys(keys)
}

// === impl PodFacts ===

impl PodFacts {
    /// Whether its program may have read the key file, or have it mounted. A pod that no node has yet mounts it later.
    fn may_have_keys(&self) -> bool {
        let spec = self.pod.spec.as_ref();
        let is_placed = spec.is_some_and(|spec| spec.node_name.is_some());
        let scheme = self.pod.annotations().get(labels::SCHEME);
        let is_plain_worker = self.is_worker() && scheme.is_none_or(|scheme| scheme != "https");
        let has_left = self.pod.metadata.deletion_timestamp.is_some() && self.is_down();
        is_placed && !is_plain_worker && !has_left && !self.has_ended()
    }
}

#[cfg(test)]
mod tests;
