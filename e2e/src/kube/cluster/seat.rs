//! Where the control plane sits: on this machine's loopback when it is alone, in the nodes' network when
//! there are nodes, with a port of the loopback that leads there.

use crate::kube::daemon::{Daemon, NamespaceScope, Site};
use crate::kube::forward::Forward;
use crate::kube::network::{APISERVER, Network};
use crate::kube::port::Reserved;
use anyhow::Result;
use std::net::SocketAddrV4;

pub(super) enum Seat {
    Loopback(Reserved),
    Inside {
        network: Box<Network>,
        forward: Box<Forward>,
    },
}

// === impl Seat ===

impl Seat {
    pub(super) async fn take(site: &Site, nodes: u8) -> Result<Self> {
        if nodes == 0 {
            return Ok(Self::Loopback(Reserved::new()?));
        }
        let network = Network::start(site).await?;
        let forward = Forward::start(site, network.place(), APISERVER)?;
        Ok(Self::Inside {
            network: Box::new(network),
            forward: Box::new(forward),
        })
    }

    pub(super) fn place(&self) -> NamespaceScope {
        match self {
            Self::Loopback(_) => NamespaceScope::Host,
            Self::Inside { network, .. } => network.place(),
        }
    }

    /// Where the apiserver listens.
    pub(super) fn address(&self) -> SocketAddrV4 {
        match self {
            Self::Loopback(reserved) => reserved.address,
            Self::Inside { .. } => APISERVER,
        }
    }

    /// The apiserver, from this machine.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Loopback(reserved) => format!("https://{}", reserved.address),
            Self::Inside { forward, .. } => format!("https://{}", forward.address),
        }
    }

    pub(super) fn network(&self) -> Option<&Network> {
        match self {
            Self::Loopback(_) => None,
            Self::Inside { network, .. } => Some(network),
        }
    }

    pub(super) fn daemons(&mut self) -> impl Iterator<Item = &mut Daemon> {
        let inside = match self {
            Self::Loopback(_) => None,
            Self::Inside { network, forward } => Some([network.holder(), &mut forward.daemon]),
        };
        inside.into_iter().flatten()
    }
}
