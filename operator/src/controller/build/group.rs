//! Replicas that span several nodes: a leader, which to everybody else is the replica, and a follower
//! for each node beyond the first.
//!
//! A follower is made when its leader has an address, which is where it goes to meet the others: a
//! name would need a Service of its own and a DNS that already knows it. It belongs to its leader's
//! pod, so that Kubernetes takes it away with that, operator or not. The flags are SGLang's.

use super::args::Args;
use super::pod::{POD_IP_ARG, PORT_BOOTSTRAP};
use super::pool::agent_container;
use crate::controller::site::Site;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use pd_protocol::labels;
use pd_protocol::ports::WorkerPorts;
use std::net::SocketAddr;

/// Of a pod's first address, which is written into its flags before it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

/// Makes a worker's pod the leader of a replica that spans so many nodes, and may span one.
pub(super) fn lead(pod: &mut Pod, nodes: u32, family: Family, ports: WorkerPorts) {
    // Also where it is alone: clients that count replicas by their pods select leaders.
    rank(pod, 0);
    if nodes < 2 {
        return;
    }
    let annotations = pod.annotations_mut();
    annotations.insert(labels::NODES.to_owned(), nodes.to_string());
    let meet_at = match family {
        Family::V4 => format!("{POD_IP_ARG}:{}", ports.rendezvous),
        Family::V6 => format!("[{POD_IP_ARG}]:{}", ports.rendezvous),
    };
    join(pod, 0, nodes, meet_at);
}

/// Makes a worker's pod the one of a follower.
pub(super) fn follow(
    pod: &mut Pod,
    leader: &ObjectMeta,
    rank: u32,
    nodes: u32,
    meet_at: SocketAddr,
) {
    let name = leader.name.clone().unwrap_or_default();
    pod.metadata.name = Some(follower_name(&name, rank));
    pod.metadata.owner_references = Some(vec![OwnerReference {
        api_version: Pod::api_version(&()).into_owned(),
        kind: Pod::kind(&()).into_owned(),
        name,
        uid: leader.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    pod.annotations_mut().remove(labels::BOOTSTRAP_PORT);
    // Routers know of the leader alone.
    let spec = pod.spec.as_mut();
    if let Some(gates) = spec.and_then(|spec| spec.readiness_gates.as_mut()) {
        gates.retain(|gate| gate.condition_type != labels::ROUTABLE_GATE);
    }
    if let Some(agent) = agent_container(pod) {
        let ports = agent.ports.get_or_insert_default();
        ports.retain(|port| port.name.as_deref() != Some(PORT_BOOTSTRAP));
    }
    self::rank(pod, rank);
    join(pod, rank, nodes, meet_at.to_string());
}

pub(crate) fn follower_name(leader: &str, rank: u32) -> String {
    format!("{leader}-{rank}")
}

fn rank(pod: &mut Pod, rank: u32) {
    let labels = pod.labels_mut();
    labels.insert(labels::NODE_RANK.to_owned(), rank.to_string());
}

fn join(pod: &mut Pod, rank: u32, nodes: u32, meet_at: String) {
    if let Some(agent) = agent_container(pod) {
        let mut args = Args(agent.args.take().unwrap_or_default());
        args.set("dist-init-addr", meet_at);
        args.set("nnodes", nodes.to_string());
        args.set("node-rank", rank.to_string());
        agent.args = Some(args.0);
    }
}

// === impl Family ===

impl Family {
    pub(super) fn of(site: &Site) -> Self {
        if site.ipv6 { Self::V6 } else { Self::V4 }
    }
}
