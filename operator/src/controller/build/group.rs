//! Replicas that span several nodes: a leader, which to everyone else is the replica, and a follower
//! for each node beyond the first.
//!
//! All of them exist at once, so that they get their nodes together, and meet at the leader's name, which a headless
//! Service resolves as soon as the leader has an address, long before anything is ready. A follower belongs to its
//! leader's pod, so that Kubernetes takes it away with that, operator or not. The flags are SGLang's.

use super::args::Args;
use super::component::owned;
use super::pod::{POD_IP_ARG, PORT_BOOTSTRAP};
use super::pool::agent_container;
use crate::controller::site::Site;
use k8s_openapi::api::core::v1::{Pod, PodSpec, Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use pd_crds::{PdDeployment, PoolRole};
use pd_protocol::labels;
use pd_protocol::ports::WorkerPorts;
use std::collections::BTreeMap;

/// Of a pod's first address, which is written into its flags before it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

/// The Service that resolves leaders' names, where a pool has replicas that span nodes.
pub(super) fn build_names(deployment: &PdDeployment) -> Option<Service> {
    let pools = &deployment.spec.pools;
    let spans = |role| pools.of(role).nodes > 1;
    if !spans(PoolRole::Prefill) && !spans(PoolRole::Decode) {
        return None;
    }
    let leaders = [
        (labels::DEPLOYMENT.to_owned(), deployment.name_any()),
        (labels::NODE_RANK.to_owned(), "0".to_owned()),
    ];
    Some(Service {
        metadata: owned(deployment, "names", names(&deployment.name_any())),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            publish_not_ready_addresses: Some(true),
            selector: Some(BTreeMap::from(leaders)),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}

/// Name of that Service, which is the last part of leaders' names.
fn names(deployment: &str) -> String {
    format!("{deployment}-workers")
}

/// Makes a worker's pod the leader of a replica that spans so many nodes, and may span one.
pub(super) fn lead(pod: &mut Pod, nodes: u32, family: Family, ports: WorkerPorts) {
    // Also where it is alone: clients that count replicas by their pods select leaders.
    let name = pod.name_any();
    rank(pod, &name, 0);
    if nodes < 2 {
        return;
    }
    let deployment = pod.labels().get(labels::DEPLOYMENT).cloned();
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name);
    spec.subdomain = deployment.as_deref().map(names);
    let annotations = pod.annotations_mut();
    annotations.insert(labels::NODES.to_owned(), nodes.to_string());
    let meet_at = match family {
        Family::V4 => format!("{POD_IP_ARG}:{}", ports.rendezvous),
        Family::V6 => format!("[{POD_IP_ARG}]:{}", ports.rendezvous),
    };
    join(pod, 0, nodes, meet_at);
}

/// Makes a worker's pod the one of a follower.
pub(super) fn follow(pod: &mut Pod, leader: &ObjectMeta, rank: u32, nodes: u32) {
    let name = leader.name.clone().unwrap_or_default();
    pod.metadata.name = Some(follower_name(&name, rank));
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
    self::rank(pod, &name, rank);
    let deployment = pod.labels().get(labels::DEPLOYMENT);
    let service = names(deployment.map_or("", String::as_str));
    let ports = WorkerPorts::of(leader.annotations.as_ref().unwrap_or(&BTreeMap::new()));
    join(
        pod,
        rank,
        nodes,
        format!("{name}.{service}:{}", ports.rendezvous),
    );
    pod.metadata.owner_references = Some(vec![owner(leader)]);
}

/// What belongs to a pod.
pub(crate) fn owner(pod: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: Pod::api_version(&()).into_owned(),
        kind: Pod::kind(&()).into_owned(),
        name: pod.name.clone().unwrap_or_default(),
        uid: pod.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// Names of the cluster are resolved for pods with a network of their own, and for others that ask for it.
pub(super) fn resolve_names(spec: &mut PodSpec) {
    if spec.host_network == Some(true) {
        let policy = spec.dns_policy.get_or_insert_default();
        if policy.is_empty() {
            "ClusterFirstWithHostNet".clone_into(policy);
        }
    }
}

pub(crate) fn follower_name(leader: &str, rank: u32) -> String {
    format!("{leader}-{rank}")
}

fn rank(pod: &mut Pod, replica: &str, rank: u32) {
    let labels = pod.labels_mut();
    labels.insert(labels::REPLICA.to_owned(), replica.to_owned());
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
