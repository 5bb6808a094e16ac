//! What pods say of the workers in them. Holds no I/O.

use kube::core::Object;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};
use pd_protocol::Role;
use pd_protocol::workers::WorkerSpec;
use pd_protocol::{labels, ports};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// SGLang's name for the annotation with the bootstrap server's port.
const BOOTSTRAP_PORT_SGLANG: &str = "sglang.ai/bootstrap-port";

/// A pod as the router reads it; decoding the whole of one would be a third of this crate's machine
/// code. What lacks is empty: a single odd pod must not break off the watch on all.
pub(super) type Pod = Object<PodSpec, PodStatus>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodSpec {
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Container {
    ports: Vec<ContainerPort>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerPort {
    name: Option<String>,
    container_port: i32,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PodStatus {
    phase: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

/// What the router has to do about an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Add(WorkerSpec),
    Cordon(String),
    Remove(String),
}

/// The pods of one role that the router knows, by name.
#[derive(Debug)]
pub(super) struct Pods {
    role: Role,
    /// HTTP port of a pod that names none.
    port: u16,
    /// Scheme of a pod that names none.
    scheme: &'static str,
    known: BTreeMap<String, Known>,
    /// Names in the list that is being read; those that it lacks are gone.
    listed: BTreeSet<String>,
}

#[derive(Debug)]
struct Known {
    uid: Option<String>,
    spec: WorkerSpec,
    leaves: bool,
}

// === impl Pods ===

impl Pods {
    pub(super) fn new(role: Role, port: u16, scheme: &'static str) -> Self {
        Self {
            role,
            port,
            scheme,
            known: BTreeMap::new(),
            listed: BTreeSet::new(),
        }
    }

    pub(super) fn take(&mut self, event: Event<Pod>) -> Vec<Change> {
        match event {
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(pod) => {
                self.listed.insert(pod.name_any());
                self.apply(&pod)
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let gone = self.known.extract_if(.., |name, _| !listed.contains(name));
                gone.map(|(name, _)| Change::Remove(name)).collect()
            }
            Event::Apply(pod) => self.apply(&pod),
            Event::Delete(pod) => self.forget(&pod.name_any()).into_iter().collect(),
        }
    }

    fn apply(&mut self, pod: &Pod) -> Vec<Change> {
        if labels::is_follower(pod.labels()) {
            return Vec::new();
        }
        let name = pod.name_any();
        let mut changes = Vec::new();
        let address = address(pod).filter(|_| !has_ended(pod));
        let spec = address.map(|ip| self.spec(pod, ip));
        let is_known = self
            .known
            .get(&name)
            .is_some_and(|known| known.uid == pod.uid() && Some(&known.spec) == spec.as_ref());
        if !is_known {
            changes.extend(self.forget(&name));
        }
        let leaves = leaves(pod);
        match (self.known.get_mut(&name), spec) {
            (Some(known), _) => {
                if leaves && !known.leaves {
                    known.leaves = true;
                    changes.push(Change::Cordon(name));
                }
            }
            (None, Some(spec)) if !leaves && is_ready(pod) => {
                let known = Known {
                    uid: pod.uid(),
                    spec: spec.clone(),
                    leaves,
                };
                self.known.insert(name, known);
                changes.push(Change::Add(spec));
            }
            (None, _) => {}
        }
        changes
    }

    fn forget(&mut self, name: &str) -> Option<Change> {
        self.known.remove(name)?;
        Some(Change::Remove(name.to_owned()))
    }

    fn spec(&self, pod: &Pod, ip: IpAddr) -> WorkerSpec {
        let address = SocketAddr::new(ip, http_port(pod).unwrap_or(self.port));
        WorkerSpec {
            id: pod.name_any(),
            role: self.role,
            url: format!("{}://{address}", scheme(pod).unwrap_or(self.scheme)),
            bootstrap_host: None,
            bootstrap_port: bootstrap_port(pod).filter(|_| self.role == Role::Prefill),
            given_kv_compat: pod.annotations().get(labels::KV_COMPAT).cloned(),
        }
    }
}

fn address(pod: &Pod) -> Option<IpAddr> {
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// Its containers pass their probes. Not the pod's own readiness: that waits for the routers.
fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.iter();
    let mut conditions = status.flat_map(|status| &status.conditions);
    conditions.any(|is| is.kind == "ContainersReady" && is.status == "True")
}

/// Whether it was asked to leave, by the operator or by a deletion.
fn leaves(pod: &Pod) -> bool {
    pod.meta().deletion_timestamp.is_some() || pod.annotations().contains_key(labels::LEAVING_SINCE)
}

/// The port that a container calls `http`.
fn http_port(pod: &Pod) -> Option<u16> {
    let containers = pod.spec.containers.iter();
    let mut ports = containers.flat_map(|container| &container.ports);
    let named = ports.find(|port| port.name.as_deref() == Some("http"))?;
    u16::try_from(named.container_port).ok()
}

/// As the annotation has it; the URL is refused if that is no scheme of a worker.
fn scheme(pod: &Pod) -> Option<&str> {
    pod.annotations().get(labels::SCHEME).map(String::as_str)
}

fn bootstrap_port(pod: &Pod) -> Option<u16> {
    let annotations = pod.annotations();
    let text = [labels::BOOTSTRAP_PORT, BOOTSTRAP_PORT_SGLANG]
        .into_iter()
        .find_map(|name| annotations.get(name))?;
    let port = text.parse().ok().filter(|port| *port > 0);
    if port.is_none() {
        tracing::warn!(
            pod = pod.name_any(),
            annotation = text,
            default = ports::BOOTSTRAP,
            "the bootstrap port must be a number in 1..=65535; what the worker itself says is used"
        );
    }
    port
}

#[cfg(test)]
mod tests;
