//! What a test breaks.

use super::Cluster;
use crate::kube::node::Node;
use anyhow::{Context, Result};

// === impl Cluster ===

impl Cluster {
    /// Kills etcd and starts it again on its data; waits until the apiserver is ready on it.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn restart_etcd(&mut self) -> Result<()> {
        self.control_plane.etcd.kill()?;
        self.control_plane.etcd.start_again()?;
        self.wait_apiserver().await
    }

    /// Kills the apiserver and starts it again on its port; waits until it is ready.
    ///
    /// # Errors
    /// When it does not come back.
    pub async fn restart_apiserver(&mut self) -> Result<()> {
        self.control_plane.apiserver.kill()?;
        self.control_plane.apiserver.start_again()?;
        self.wait_apiserver().await
    }

    /// Cuts the link between node `nr` (from 1) and everything else.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn cut_link(&mut self, nr: u8) -> Result<()> {
        self.set_link(nr, false)
    }

    /// Mends what [`Cluster::cut_link`] cut.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn mend_link(&mut self, nr: u8) -> Result<()> {
        self.set_link(nr, true)
    }

    /// Node `nr`, from 1: its kubelet and its power.
    ///
    /// # Errors
    /// When there is no such node.
    pub fn node(&mut self, nr: u8) -> Result<&mut Node> {
        let mut nodes = self.nodes.iter_mut();
        nodes
            .find(|node| node.address.nr == nr)
            .with_context(|| format!("the cluster has no node {nr}"))
    }

    fn set_link(&mut self, nr: u8, up: bool) -> Result<()> {
        let address = self.node(nr)?.address;
        let network = self.seat.network().context("nodes share a network")?;
        network.set_link(address, up)
    }
}
