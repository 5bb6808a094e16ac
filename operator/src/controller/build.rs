//! Builds every object of a deployment, as a function of its spec.

pub(crate) mod component;
pub(crate) mod merge;
pub(crate) mod pod;
pub(crate) mod pool;
pub(crate) mod revision;
pub(crate) mod router;
pub(crate) mod service;

use super::validate::Valid;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use pd_crds::field::FieldErrors;
use pool::Pool;

/// What the objects refer to beside the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BuildConfig {
    /// Image of agents and routers whose spec names none.
    pub(crate) image: String,
    /// Port of the router's admin API.
    pub(crate) router_admin_port: u16,
}

/// All objects of one deployment.
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
            router_admin_port: pd_protocol::ports::ADMIN,
        }
    }
}

#[cfg(test)]
mod tests;
