//! Disruption budgets: an eviction may not take a worker before it has drained.

use super::component::Component;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use pd_crds::PdDeployment;

/// More than any pool has: no eviction of a healthy worker is let through.
const BEYOND_REACH: i32 = 1_000_000;

/// Who takes workers off a node that is being emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mover {
    /// The operator, after their successors serve; evictions are refused until it has.
    Operator,
    /// Whoever evicts them, one at a time.
    Eviction,
}

/// The budget of one component's pods, of which `replicas` are wanted.
pub(crate) fn build_budget(
    deployment: &PdDeployment,
    component: Component,
    replicas: u32,
    mover: Mover,
) -> PodDisruptionBudget {
    // Workers belong to no workload that Kubernetes knows the size of, so the bound is a number.
    let (min_available, max_unavailable) = match (component, mover) {
        (Component::Router, _) => (None, Some(1)),
        (Component::Prefill | Component::Decode, Mover::Operator) => (Some(BEYOND_REACH), None),
        (Component::Prefill | Component::Decode, Mover::Eviction) => {
            let all_but_one = replicas.saturating_sub(1);
            (Some(i32::try_from(all_but_one).unwrap_or(i32::MAX)), None)
        }
    };
    PodDisruptionBudget {
        metadata: component.metadata(deployment, component.object_name(deployment)),
        spec: Some(PodDisruptionBudgetSpec {
            min_available: min_available.map(IntOrString::Int),
            max_unavailable: max_unavailable.map(IntOrString::Int),
            selector: Some(component.selector(deployment)),
            // One that does not work has nothing to lose.
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
        }),
        status: None,
    }
}
