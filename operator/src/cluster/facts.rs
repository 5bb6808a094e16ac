//! What a pod's own object says, before anyone is asked.

use super::nodes::Nodes;
use crate::controller::build::component::Component;
use crate::controller::build::pod::PORT_ADMIN;
use crate::controller::build::pool::AGENT;
use crate::controller::build::router;
use crate::controller::build::slot::Slot;
use k8s_openapi::api::core::v1::PodCondition;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_crds::drain::OnCordon;
use pd_crds::node_disposition::NodeDisposition;
use pd_crds::pod::{Container, ContainerStatus, Pod};
use pd_crds::stuck::{Stuck, stuck};
use pd_protocol::labels::{self, ROUTABLE_GATE};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

/// A status shows the beginning of what a program said.
const STUCK_CHARS_MAX: usize = 500;
/// The schema's bound of `nodes`: a larger number written into a pod makes no more pods.
const NODES_MAX: u32 = 64;

/// A pod's own word on where it stands, before anyone is asked; of a replica that spans several
/// nodes, its pods' word, with the leader's name and address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodFacts {
    pub(crate) component: Component,
    /// `None` for a router's: its Deployment names it.
    pub(crate) slot: Option<Slot>,
    pub(crate) disposition: NodeDisposition,
    pub(crate) pod: Arc<Pod>,
    pub(crate) group: Group,
    /// It was started with an admin token that is no longer known.
    pub(crate) holds_old_token: bool,
}

/// The followers of a replica that spans nodes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    /// As many as its leader was made for, itself included.
    nodes: u32,
    followers: Vec<Arc<Pod>>,
}

/// Reads what a deployment's pods say; those that are none of ours are left out.
pub(crate) fn all_facts(
    deployment: &PdDeployment,
    pods: Vec<Arc<Pod>>,
    nodes: &Nodes,
) -> Vec<PodFacts> {
    let (followers, pods): (Vec<_>, Vec<_>) = pods
        .into_iter()
        .partition(|pod| labels::is_follower(pod.labels()));
    let facts = pods.into_iter().filter_map(|pod| {
        let group = Group::of(&pod, &followers);
        pod_facts(deployment, pod, group, nodes)
    });
    facts.collect()
}

/// Reads which component a pod is of; nothing for a pod that is none of ours.
fn pod_facts(
    deployment: &PdDeployment,
    pod: Arc<Pod>,
    group: Group,
    nodes: &Nodes,
) -> Option<PodFacts> {
    let role = pod.labels().get(labels::ROLE)?;
    let component = Component::ALL
        .into_iter()
        .find(|component| component.as_str() == role)?;
    let base = component.object_name(deployment);
    let slot = Slot::of_pod(&base, &pod.name_any());
    if component != Component::Router && slot.is_none() {
        return None;
    }
    let node_disposition = |pod: &Arc<Pod>| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.map_or(NodeDisposition::Keep, |node| nodes.disposition(node))
    };
    let members = iter::once(&pod).chain(&group.followers);
    let disposition = members.map(node_disposition).max().unwrap_or_default();
    let stays = disposition == NodeDisposition::Evacuate
        && deployment.spec.drain.on_cordon == OnCordon::Ignore;
    let disposition = if stays {
        NodeDisposition::Keep
    } else {
        disposition
    };
    let mut facts = PodFacts {
        component,
        slot,
        disposition,
        pod,
        group,
        holds_old_token: false,
    };
    if facts.is_broken() {
        facts.disposition = NodeDisposition::Lost;
    }
    Some(facts)
}

// === impl PodFacts ===

impl PodFacts {
    /// Its pod and its followers.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Arc<Pod>> {
        iter::once(&self.pod).chain(&self.group.followers)
    }

    /// Whether it is a worker, and no router: a router's pod has no slot.
    pub(crate) fn is_worker(&self) -> bool {
        self.slot.is_some()
    }

    /// Whether all of its containers pass their probes.
    pub(crate) fn ready(&self) -> bool {
        let name = match self.component {
            Component::Router => "Ready",
            Component::Prefill | Component::Decode => "ContainersReady",
        };
        self.group.is_whole() && self.members().all(|pod| condition(pod, name))
    }

    /// Whether its readiness gate has latched.
    pub(crate) fn routable(&self) -> bool {
        condition(&self.pod, ROUTABLE_GATE)
    }

    /// Whether one of its pods has a node.
    pub(crate) fn has_node(&self) -> bool {
        self.members().any(|pod| is_placed(pod))
    }

    /// Pods of which it consists when it is whole.
    pub(crate) fn nodes(&self) -> u32 {
        self.group.nodes
    }

    /// Nodes on which it lacks a pod, by rank.
    pub(crate) fn missing(&self) -> impl Iterator<Item = u32> {
        self.group.missing()
    }

    /// Whether it is not broken, and not all of its nodes are known yet.
    pub(crate) fn gathers(&self) -> bool {
        let has_all = self.group.is_whole() && self.members().all(|pod| is_placed(pod));
        self.group.nodes > 1 && !has_all && self.disposition != NodeDisposition::Lost
    }

    /// Whether one of its pods went that the others cannot do without: ranks that have met cannot meet
    /// again. While they come up, the kubelets restart those that waited too long.
    fn is_broken(&self) -> bool {
        if self.group.nodes < 2 || self.pod.metadata.deletion_timestamp.is_some() {
            return false;
        }
        let went = |pod: &Arc<Pod>| pod.metadata.deletion_timestamp.is_some() || has_ended(pod);
        let admitted = || self.pod.annotations().get(labels::MEMBERS);
        self.group.followers.iter().any(went)
            || self.routable() && admitted() != Some(&self.members_digest())
    }

    /// Names its pods and how often each was restarted; equal only while none was restarted.
    pub(crate) fn members_digest(&self) -> String {
        let mut digest = Sha256::new();
        for pod in self.members() {
            digest.update(pod.uid().unwrap_or_default());
            let statuses = pod.status.iter();
            for container in statuses.flat_map(|status| status.container_statuses.iter().flatten())
            {
                digest.update(container.restart_count.to_le_bytes());
            }
        }
        let digest = digest.finalize();
        digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    pub(crate) fn leaves(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some() || self.leaving_since().is_some()
    }

    pub(crate) fn awaits_acknowledgement(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_none() && self.leaving_since().is_some()
    }

    /// When it was asked to leave, if it was.
    pub(crate) fn leaving_since(&self) -> Option<Timestamp> {
        let since = self.pod.annotations().get(labels::LEAVING_SINCE)?;
        // An unreadable time must not keep the pod forever.
        Some(since.parse().unwrap_or(Timestamp::MIN))
    }

    /// How long ago it was asked to leave.
    pub(crate) fn leaving_for(&self, now: Timestamp) -> Option<Duration> {
        now.duration_since(self.leaving_since()?).try_into().ok()
    }

    /// What keeps it from starting.
    pub(crate) fn stuck(&self) -> Option<Stuck> {
        if self.leaves() {
            return None;
        }
        let mut stuck = self.members().find_map(|pod| stuck(pod))?;
        if let Some((end, _)) = stuck.message.char_indices().nth(STUCK_CHARS_MAX) {
            stuck.message.truncate(end);
        }
        Some(stuck)
    }

    /// When it last went forward: it was made, placed, became ready or was asked to leave.
    pub(crate) fn last_change(&self) -> Option<Timestamp> {
        let forward = |pod: &Pod| {
            let conditions = conditions(pod).filter(|condition| condition.status == "True");
            let changed = conditions.filter_map(|is| is.last_transition_time.clone());
            changed
                .chain(pod.creation_timestamp())
                .map(|time| time.0)
                .max()
        };
        let times = self.members().filter_map(|pod| forward(pod));
        times.chain(self.leaving_since()).max()
    }

    pub(crate) fn has_ended(&self) -> bool {
        has_ended(&self.pod)
    }

    pub(crate) fn can_answer(&self) -> bool {
        phase(&self.pod) == Some("Running")
            && self.disposition != NodeDisposition::Lost
            && !self.is_down()
    }

    /// Whether its program does not run now: it ended, and is started again or is not.
    pub(crate) fn is_down(&self) -> bool {
        let agent = agent_status(&self.pod);
        let state = agent.and_then(|agent| agent.state.as_ref());
        state.is_some_and(|state| state.terminated.is_some() || state.waiting.is_some())
    }

    /// Whether it lets this operator ask how far its drain is: not every engine has an admin API.
    pub(crate) fn takes_admin_calls(&self) -> bool {
        let ports = agent_container(&self.pod).and_then(|agent| agent.ports.as_ref());
        let has_port = ports.is_none_or(|ports| {
            let mut ports = ports.iter();
            ports.any(|port| port.name.as_deref() == Some(PORT_ADMIN))
        });
        has_port && !self.holds_old_token
    }

    /// The account that it runs under.
    pub(crate) fn account(&self) -> Option<&str> {
        let spec = self.pod.spec.as_ref()?;
        spec.service_account_name.as_deref()
    }

    /// The image that its program is of.
    pub(crate) fn image(&self) -> Option<&str> {
        program(&self.pod)?.image.as_deref()
    }

    /// Whether a container waits for a Secret that is not there.
    pub(crate) fn lacks_secret(&self) -> bool {
        self.members().any(|pod| {
            let statuses = pod.status.iter();
            let mut containers = statuses.flat_map(|is| is.container_statuses.iter().flatten());
            containers.any(|container| {
                let waiting = container.state.as_ref().and_then(|is| is.waiting.as_ref());
                let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
                reason == Some("CreateContainerConfigError")
            })
        })
    }

    /// Labels that selectors need and that it lacks: its operator was of an earlier version, or it was
    /// asked to leave by another client.
    pub(crate) fn lacking_labels(&self) -> BTreeMap<&'static str, &'static str> {
        let wanted = [
            (labels::NODE_RANK, "0", self.component != Component::Router),
            (labels::LEAVING, "true", self.leaving_since().is_some()),
        ];
        let lacks = wanted
            .into_iter()
            .filter(|(name, _, is_due)| *is_due && !self.pod.labels().contains_key(*name));
        lacks.map(|(name, value, _)| (name, value)).collect()
    }

    pub(crate) fn revision(&self) -> String {
        let revision = self.pod.labels().get(labels::REVISION).cloned();
        revision.unwrap_or_default()
    }
}

// === impl Group ===

impl Group {
    fn of(leader: &Pod, followers: &[Arc<Pod>]) -> Self {
        let nodes = leader.annotations().get(labels::NODES);
        let nodes = nodes.and_then(|nodes| nodes.parse().ok()).unwrap_or(1);
        let nodes = nodes.min(NODES_MAX);
        let uid = leader.uid();
        let own = followers.iter().filter(|pod| {
            let mut owners = pod.owner_references().iter();
            uid.is_some() && owners.any(|owner| Some(&owner.uid) == uid.as_ref())
        });
        Self {
            nodes,
            followers: own.cloned().collect(),
        }
    }

    fn missing(&self) -> impl Iterator<Item = u32> {
        let is_there = |rank: &u32| {
            let rank = rank.to_string();
            let mut followers = self.followers.iter();
            followers.any(|pod| pod.labels().get(labels::NODE_RANK) == Some(&rank))
        };
        (1..self.nodes).filter(move |rank| !is_there(rank))
    }

    fn is_whole(&self) -> bool {
        self.missing().next().is_none()
    }
}

fn agent_status(pod: &Pod) -> Option<&ContainerStatus> {
    let status = pod.status.as_ref()?;
    let mut containers = status.container_statuses.iter().flatten();
    containers.find(|container| container.name == AGENT)
}

fn agent_container(pod: &Pod) -> Option<&Container> {
    let spec = pod.spec.as_ref()?;
    spec.containers
        .iter()
        .find(|container| container.name == AGENT)
}

fn program(pod: &Pod) -> Option<&Container> {
    let spec = pod.spec.as_ref()?;
    let programs = [AGENT, router::CONTAINER];
    let mut containers = spec.containers.iter();
    containers.find(|container| programs.contains(&container.name.as_str()))
}

fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), Some("Failed" | "Succeeded"))
}

/// Whether it has a node.
pub(super) fn is_placed(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    spec.is_some_and(|spec| spec.node_name.is_some())
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn condition(pod: &Pod, name: &str) -> bool {
    conditions(pod).any(|condition| condition.type_ == name && condition.status == "True")
}

fn conditions(pod: &Pod) -> impl Iterator<Item = &PodCondition> {
    let status = pod.status.iter();
    status.flat_map(|status| status.conditions.iter().flatten())
}
