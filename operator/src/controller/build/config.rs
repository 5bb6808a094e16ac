//! What objects are built from beside the spec: how the operator was installed.

use super::network::Admins;
use crate::controller::site::Site;
use std::net::IpAddr;
use std::path::PathBuf;

/// What the objects refer to beside the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BuildConfig {
    /// Image of agents and routers whose spec names none.
    pub(crate) image: String,
    /// Where the router serves clients; the pod's own address if nothing is given. The local
    /// runtime has no Service in front of it, so there the router listens where clients go.
    pub(crate) router_host: Option<IpAddr>,
    /// File with the keys of the deployment's processes on this machine; on a cluster pods mount a Secret with them.
    pub(crate) peer_key_file: Option<PathBuf>,
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
    /// Variables by which pods that fetch models find the way out of the cluster.
    pub(crate) proxy: Vec<(String, String)>,
    /// What the cluster has and allows.
    pub(crate) site: Site,
}

// === impl BuildConfig ===

impl Default for BuildConfig {
    fn default() -> Self {
        Self {
            image: concat!("pdserve:", env!("CARGO_PKG_VERSION")).to_owned(),
            router_host: None,
            peer_key_file: None,
            discovery: false,
            namespaced: false,
            router_role: "pdserve-router".to_owned(),
            admins: None,
            may_raise_privileges: false,
            proxy: Vec::new(),
            site: Site::default(),
        }
    }
}
