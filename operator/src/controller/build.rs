//! Builds every object of a deployment, as a function of its spec.

mod access;
pub(crate) mod account;
pub(crate) mod args;
pub(crate) mod budget;
pub(crate) mod component;
mod devices;
pub(crate) mod group;
pub(crate) mod history;
pub(crate) mod host_network;
pub(crate) mod merge;
mod model;
mod neighbours;
pub(crate) mod network;
mod placement;
pub(crate) mod pod;
pub(crate) mod pool;
pub(crate) mod privileges;
pub(crate) mod revision;
pub(crate) mod router;
pub(crate) mod service;
pub(crate) mod shared;

use super::site::Site;
use super::validate::Valid;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use network::Admins;
use pd_crds::field::FieldErrors;
use pool::Pool;
use std::net::IpAddr;

/// What the objects refer to beside the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BuildConfig {
    /// Image of agents and routers whose spec names none.
    pub(crate) image: String,
    /// Where the router serves clients; the pod's own address if nothing is given. The local
    /// runtime has no Service in front of it, so there the router listens where clients go.
    pub(crate) router_host: Option<IpAddr>,
    /// Routers find their workers by watching pods; without a cluster the operator registers them.
    pub(crate) discovery: bool,
    /// The operator may see one namespace only, and so is the routers' role one of a namespace.
    pub(crate) namespaced: bool,
    /// Role or ClusterRole that the chart installs for routers. The operator binds it and cannot widen it.
    pub(crate) router_role: String,
    /// Who may reach admin ports, where network policies are made.
    pub(crate) admins: Option<Admins>,
    /// Whether a `podTemplate` may raise a pod's privileges.
    pub(crate) may_raise_privileges: bool,
    /// What the cluster has and allows.
    pub(crate) site: Site,
}

/// The objects that every deployment has of its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Resources {
    pub(crate) prefill: Pool,
    pub(crate) decode: Pool,
    pub(crate) router: Deployment,
    pub(crate) service: Service,
}

/// Builds all objects; fails where the spec's overrides do not make a Pod.
pub(crate) fn build(valid: &Valid, config: &BuildConfig) -> Result<Resources, FieldErrors> {
    let deployment = valid.deployment();
    Ok(Resources {
        prefill: pool::build_pool(deployment, component::Component::Prefill, config)?,
        decode: pool::build_pool(deployment, component::Component::Decode, config)?,
        router: router::build_router(deployment, config)?,
        service: service::build_service(deployment),
    })
}

// === impl BuildConfig ===

impl Default for BuildConfig {
    fn default() -> Self {
        Self {
            image: concat!("pdserve:", env!("CARGO_PKG_VERSION")).to_owned(),
            router_host: None,
            discovery: false,
            namespaced: false,
            router_role: "pdserve-router".to_owned(),
            admins: None,
            may_raise_privileges: false,
            site: Site::default(),
        }
    }
}

#[cfg(test)]
mod tests;
