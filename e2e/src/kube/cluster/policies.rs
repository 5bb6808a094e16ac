//! kube-router on every node, which keeps network policies.

use super::Cluster;
use crate::kube::host;
use crate::kube::tools::ExtraTool;
use crate::kube::versions::KUBE_ROUTER;
use anyhow::Result;

// === impl Cluster ===

impl Cluster {
    /// It looks for its node when it starts.
    ///
    /// # Errors
    /// When kube-router cannot be built or started.
    pub(super) fn start_policies(&mut self) -> Result<()> {
        host::check_policies()?;
        let tool = ExtraTool::ready(&self.cache, &KUBE_ROUTER)?;
        let kubeconfig = self.control_plane.plan.own_kubeconfig()?;
        let mut nodes = self.nodes.iter_mut();
        nodes.try_for_each(|node| node.start_policies(&tool.program, &kubeconfig))
    }
}
