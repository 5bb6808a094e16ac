//! Disruption budgets. Karpenter and the cluster autoscaler empty no node that has a pod which may not
//! be evicted, so while all is well one worker may be: SIGTERM drains it. What an eviction must not
//! take is moved by the operator first: workers of a node that is being emptied, the only worker of a
//! pool, and pods of a replica that spans nodes.

use super::component::Component;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use pd_crds::PdDeployment;
use pd_protocol::labels;
use std::collections::BTreeMap;

/// More than any pool has: no eviction of a healthy worker is let through.
const BEYOND_REACH: i32 = 1_000_000;

/// Who takes workers off a node that is being emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mover {
    /// The operator, after their successors serve; evictions are refused until it has.
    Operator,
    /// Any eviction takes them one at a time.
    Eviction,
}

/// Of the workers of one pool, what decides whether an eviction may take one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evictable {
    pub(crate) replicas: u32,
    /// Pods of a replica.
    pub(crate) nodes: u32,
}

// === impl Mover ===

impl Mover {
    /// Who moves workers where the operator could: not while a node is being emptied, when each pool
    /// has another worker to serve meanwhile, and when a pod that goes takes no others with it.
    pub(crate) fn of(pools: &[Evictable], empties_node: bool) -> Self {
        let may_lose_one = |pool: &Evictable| pool.replicas != 1 && pool.nodes <= 1;
        if !empties_node && pools.iter().all(may_lose_one) {
            Self::Eviction
        } else {
            Self::Operator
        }
    }
}

/// The budgets of a deployment with so many pods of workers in both pools together, and so many
/// routers. A single router needs none: there is no other to wait for.
pub(crate) fn build_budgets(
    deployment: &PdDeployment,
    pods: u32,
    routers: i32,
    mover: Mover,
) -> Vec<PodDisruptionBudget> {
    // Workers belong to no workload that Kubernetes knows the size of, so the bound is a number.
    let least = match mover {
        Mover::Operator => BEYOND_REACH,
        Mover::Eviction => i32::try_from(pods.saturating_sub(1)).unwrap_or(i32::MAX),
    };
    let of_workers = PodDisruptionBudgetSpec {
        min_available: Some(IntOrString::Int(least)),
        selector: Some(worker_selector(deployment)),
        ..PodDisruptionBudgetSpec::default()
    };
    let of_routers = PodDisruptionBudgetSpec {
        max_unavailable: Some(IntOrString::Int(1)),
        selector: Some(Component::Router.selector(deployment)),
        ..PodDisruptionBudgetSpec::default()
    };
    let routers = Some(("router", of_routers)).filter(|_| routers > 1);
    let specs = std::iter::once(("workers", of_workers)).chain(routers);
    let budgets = specs.map(|(name, spec)| PodDisruptionBudget {
        metadata: Component::Router
            .metadata(deployment, format!("{}-{name}", deployment.name_any())),
        spec: Some(PodDisruptionBudgetSpec {
            // One that does not work has nothing to lose.
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..spec
        }),
        status: None,
    });
    budgets.collect()
}

/// Both pools in one: the controller that keeps budgets compares each pod with each of them.
fn worker_selector(deployment: &PdDeployment) -> LabelSelector {
    let roles = [Component::Prefill, Component::Decode].map(|role| role.as_str().to_owned());
    LabelSelector {
        match_labels: Some(BTreeMap::from([(
            labels::DEPLOYMENT.to_owned(),
            deployment.name_any(),
        )])),
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: labels::ROLE.to_owned(),
            operator: "In".to_owned(),
            values: Some(roles.to_vec()),
        }]),
    }
}

#[cfg(test)]
mod tests {
    //! Facts about who may take a worker off its node.

    use super::*;

    fn mover(replicas: [u32; 2], nodes: u32, empties_node: bool) -> Mover {
        let pools = replicas.map(|replicas| Evictable { replicas, nodes });
        Mover::of(&pools, empties_node)
    }

    #[test]
    fn an_eviction_may_take_one_of_several_and_nothing_off_a_node_that_is_emptied() {
        assert_eq!(mover([2, 3], 1, false), Mover::Eviction);
        assert_eq!(mover([2, 3], 1, true), Mover::Operator);
    }

    #[test]
    fn the_only_worker_of_a_pool_and_a_replica_of_several_nodes_are_moved_first() {
        assert_eq!(mover([2, 1], 1, false), Mover::Operator);
        assert_eq!(mover([2, 2], 2, false), Mover::Operator);
        assert_eq!(mover([2, 0], 1, false), Mover::Eviction);
    }
}
