//! Builds every object of a deployment, as a function of its spec.

mod access;
pub(crate) mod account;
pub(crate) mod args;
pub(crate) mod budget;
pub(crate) mod component;
pub(crate) mod config;
mod devices;
mod engines;
pub(crate) mod fetch;
pub(crate) mod gang;
pub(crate) mod group;
pub(crate) mod history;
pub(crate) mod host_network;
mod memory;
pub(crate) mod merge;
pub(crate) mod model;
mod neighbours;
pub(crate) mod network;
pub(crate) mod peers;
mod placement;
pub(crate) mod pod;
pub(crate) mod pool;
pub(crate) mod privileges;
pub(crate) mod revision;
pub(crate) mod router;
pub(crate) mod service;
pub(crate) mod shared;
pub(crate) mod slot;
mod spans;
pub(crate) mod worker_key;

use super::validate::Valid;
use config::BuildConfig;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use pd_crds::PoolRole;
use pd_crds::field::FieldErrors;
use pool::Pool;

/// The objects that every deployment has of its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resources {
    pub(crate) prefill: Pool,
    pub(crate) decode: Pool,
    pub(crate) router: Deployment,
    pub(crate) service: Service,
    /// Names for replicas that span nodes to meet by.
    pub(crate) names: Option<Service>,
    /// Of workers that do not know their peers; none unless network policies are made.
    pub(crate) policy: Option<NetworkPolicy>,
}

impl Resources {
    pub(crate) fn pool(&self, role: PoolRole) -> &Pool {
        match role {
            PoolRole::Prefill => &self.prefill,
            PoolRole::Decode => &self.decode,
        }
    }
}

/// Builds all objects; fails where the spec's overrides do not make a Pod.
pub(crate) fn build(valid: &Valid, config: &BuildConfig) -> Result<Resources, FieldErrors> {
    let deployment = valid.deployment();
    Ok(Resources {
        prefill: pool::build_pool(deployment, PoolRole::Prefill, config)?,
        decode: pool::build_pool(deployment, PoolRole::Decode, config)?,
        router: router::build_router(deployment, config)?,
        service: service::build_service(deployment),
        names: group::build_names(deployment),
        policy: config
            .admins
            .as_ref()
            .map(|admins| network::build_own_policy(deployment, admins)),
    })
}

#[cfg(test)]
mod tests;
