//! Snapshots for tests: of a deployment that is new, and of one that is there.

use super::Snapshot;
use crate::cluster::effective_spec::EffectiveSpec;
use crate::cluster::facts::all_facts;
use crate::cluster::fake::mk_config;
use crate::cluster::gangs::Gangs;
use crate::cluster::nodes::Nodes;
use crate::controller::autoscale::per_role::PerRole;
use crate::controller::build;
use crate::controller::build::slot::Slot;
use crate::controller::plan::{Observed, ObservedPod};
use crate::controller::validate;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use pd_crds::node_disposition::NodeDisposition;
use pd_crds::pod::Pod;
use pd_crds::{PdDeployment, PoolRole};
use pd_protocol::labels;
use pd_protocol::ports::WorkerPorts;
use serde_json::json;
use std::sync::Arc;

pub(crate) fn mk_effective(deployment: &PdDeployment) -> EffectiveSpec {
    let valid = validate::for_a_cluster(deployment, &mk_config()).expect("a valid spec");
    EffectiveSpec {
        resources: build::build(&valid, &mk_config()).expect("objects"),
        valid,
        refused: None,
        model: None,
    }
}

/// Before anything of it is there.
pub(crate) fn mk_new(effective: &EffectiveSpec) -> Snapshot<'_> {
    Snapshot {
        namespace: "ns",
        effective,
        token_since: None,
        pods: Vec::new(),
        pools: PerRole::default(),
        gangs: Gangs::default(),
        cluster_gpus: None,
        watches_nodes: true,
        now: Timestamp::UNIX_EPOCH,
    }
}

/// Everything that the spec asks for is there, and its workers' gates have latched if `routable`.
pub(crate) fn mk_there(effective: &EffectiveSpec, routable: bool) -> Snapshot<'_> {
    mk_with(effective, mk_workers(effective, 0, routable))
}

/// Pools of the wanted size, with these workers.
pub(crate) fn mk_with(effective: &EffectiveSpec, workers: Vec<Pod>) -> Snapshot<'_> {
    let object = |role| {
        effective
            .resources
            .pool(role)
            .object(effective.deployment())
    };
    let workers = workers.into_iter().map(Arc::new).collect();
    Snapshot {
        pods: all_facts(effective.deployment(), workers, &Nodes::default()),
        pools: PerRole::of(|role| Some(Arc::new(object(role)))),
        ..mk_new(effective)
    }
}

/// The workers of both pools, from an ordinal on. They run, and their gates have latched if `routable`.
pub(crate) fn mk_workers(effective: &EffectiveSpec, first: u32, routable: bool) -> Vec<Pod> {
    let pool = |role| effective.resources.pool(role);
    let slots = |role| (first..first + pool(role).replicas).map(move |ordinal| (role, ordinal));
    let slots = slots(PoolRole::Prefill).chain(slots(PoolRole::Decode));
    let pods = slots.map(|(role, ordinal)| {
        let slot = Slot {
            ordinal,
            incarnation: 1,
        };
        let mut pod = json!(pool(role).pod(slot, WorkerPorts::WELL_KNOWN));
        let condition = |name: &str, holds: bool| {
            let status = if holds { "True" } else { "False" };
            json!({"type": name, "status": status})
        };
        pod["status"] = json!({"phase": "Running", "conditions": [
            condition("ContainersReady", true),
            condition(labels::ROUTABLE_GATE, routable),
        ]});
        serde_json::from_value::<Pod>(pod).expect("a Pod")
    });
    pods.collect()
}

/// What routers and workers report of a snapshot's pods; all are sent to.
pub(crate) fn mk_observed(snapshot: &Snapshot<'_>) -> Observed {
    let pods = snapshot.pods.iter().map(|facts| ObservedPod {
        name: facts.pod.name_any(),
        component: facts.component,
        slot: facts.slot.expect("a worker"),
        revision: facts.revision(),
        ready: true,
        admitted: true,
        disposition: NodeDisposition::Keep,
        degraded: false,
        gathers: false,
        leaving: None,
    });
    Observed {
        pods: pods.collect(),
        ..Observed::default()
    }
}
