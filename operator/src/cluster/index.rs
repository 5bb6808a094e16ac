//! What the watches report, by the deployment that it belongs to.

use super::children::{Children, Stored};
use super::host_ports::HostPorts;
use super::nodes::Nodes;
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment};
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::RoleBinding;
use pd_crds::PdPool;
use pd_crds::pod::Pod;

/// What the watches reported, to be read without a request. What this process created, applied or scaled is in it at
/// once, and so is what it removed of shared objects; all else, such as a patch of a pod, once its watch reports it.
#[cfg_attr(test, derive(Default))]
pub(crate) struct Index {
    pub(crate) nodes: Nodes,
    pub(crate) host_ports: HostPorts,
    pub(crate) pods: Children<Pod>,
    pub(crate) pools: Children<PdPool>,
    pub(crate) deployments: Children<Stored<Deployment>>,
    pub(crate) services: Children<Stored<Service>>,
    pub(crate) accounts: Children<Stored<ServiceAccount>>,
    pub(crate) bindings: Children<Stored<RoleBinding>>,
    pub(crate) budgets: Children<Stored<PodDisruptionBudget>>,
    pub(crate) policies: Children<Stored<NetworkPolicy>>,
    pub(crate) revisions: Children<ControllerRevision>,
}
