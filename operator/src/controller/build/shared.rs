//! What the deployments of a namespace share, because it is alike for all of them: the routers' account
//! and the network policies. No deployment owns it; it goes when the last one has gone.

use super::account::{Account, build_account};
use super::config::BuildConfig;
use super::network::{build_router_policy, build_worker_policy};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pd_protocol::labels::{MANAGED_BY, SHARED};
use std::collections::BTreeMap;

/// Name of the account of all routers, its binding and their policy. No deployment's own object has it:
/// those end in `-router`.
pub(crate) const ROUTERS: &str = "pdserve-routers";
/// Name of the policy of all workers.
const WORKERS: &str = "pdserve-workers";

/// The shared objects of one namespace.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shared {
    pub(crate) account: Account,
    /// None unless network policies are made.
    pub(crate) policies: Vec<NetworkPolicy>,
}

/// Builds the shared objects of a namespace.
pub(crate) fn build_shared(namespace: Option<&str>, config: &BuildConfig) -> Shared {
    let policies = config.admins.iter().flat_map(|admins| {
        [
            build_router_policy(metadata(ROUTERS, namespace), admins),
            build_worker_policy(metadata(WORKERS, namespace), admins),
        ]
    });
    Shared {
        account: build_account(metadata(ROUTERS, namespace), config),
        policies: policies.collect(),
    }
}

fn metadata(name: &str, namespace: Option<&str>) -> ObjectMeta {
    let labels = [
        ("app.kubernetes.io/name", "pdserve"),
        MANAGED_BY,
        (SHARED, "true"),
    ];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some(BTreeMap::from(labels)),
        ..ObjectMeta::default()
    }
}
