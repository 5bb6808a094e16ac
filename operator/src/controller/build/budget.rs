//! Disruption budgets: an eviction may not take a worker before it has drained.

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
    /// Whoever evicts them, one at a time.
    Eviction,
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
