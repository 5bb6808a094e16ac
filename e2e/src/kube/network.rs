//! The cluster's network: a bridge in a namespace of its own, which the control plane shares, and a link
//! from it to each node. The addresses exist nowhere else, so they cannot collide with this machine's.

use crate::kube::daemon::{Daemon, NamespaceScope, Site};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Cluster addresses of Services.
pub const SERVICES: &str = "10.96.0.0/16";
/// Addresses of all pods; each node has a /24 of them.
pub const PODS: &str = "10.91.0.0/16";
/// The apiserver, where nodes reach it.
pub const APISERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 90, 0, 1), 6443);
/// A registry that a test runs beside the apiserver, where nodes reach it.
pub const REGISTRY: SocketAddrV4 = SocketAddrV4::new(*APISERVER.ip(), 5000);
/// Most nodes that the addresses allow.
pub const NODES_MAX: u8 = 100;
const BRIDGE: &str = "br0";
/// Entering a namespace takes a millisecond.
const READY_LIMIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Where one node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// From 1.
    pub nr: u8,
}

/// The namespace that holds the bridge.
pub struct Network {
    holder: Daemon,
    place: NamespaceScope,
    site: Site,
}

// === impl NodeAddress ===

impl NodeAddress {
    pub fn ip(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 90, 0, 10 + self.nr)
    }

    /// Addresses of the node's pods.
    pub fn pods(self) -> String {
        format!("10.91.{}.0/24", self.nr)
    }

    /// The bridge's end of the node's link.
    fn link(self) -> String {
        format!("node{}", self.nr)
    }
}

// === impl Network ===

impl Network {
    /// # Errors
    /// When the namespace or the bridge cannot be made.
    pub async fn start(site: &Site) -> Result<Self> {
        let command = ["unshare", "--net", "sleep", "infinity"];
        let command = command.map(str::to_owned).to_vec();
        let mut holder = Daemon::spawn(site, NamespaceScope::Host, "network", command)?;
        let entered = format!("/proc/{}/ns/net", holder.pid()?.as_raw_nonzero());
        let own = fs::read_link("/proc/self/ns/net")?;
        let deadline = Instant::now() + READY_LIMIT;
        while fs::read_link(&entered).is_ok_and(|namespace| namespace == own) {
            holder.check_alive()?;
            ensure!(
                Instant::now() < deadline,
                "no network namespace after {READY_LIMIT:?}"
            );
            sleep(POLL_INTERVAL).await;
        }
        let place = NamespaceScope::Network(holder.pid()?);
        let network = Self {
            holder,
            place,
            site: site.clone(),
        };
        let address = format!("{}/24", APISERVER.ip());
        network.ip("link set lo up")?;
        network.ip(&format!("link add {BRIDGE} type bridge"))?;
        network.ip(&format!("address add {address} dev {BRIDGE}"))?;
        network.ip(&format!("link set {BRIDGE} up"))?;
        // kube-proxy rewrites the address on the way out, but without a route there is no way out.
        network.ip(&format!("route add {SERVICES} dev {BRIDGE}"))?;
        Ok(network)
    }

    /// Programs placed here see the bridge's network.
    pub fn place(&self) -> NamespaceScope {
        self.place
    }

    pub fn holder(&mut self) -> &mut Daemon {
        &mut self.holder
    }

    /// Joins `node`, whose namespaces `at` names, and adds routes to `others`.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn join(
        &self,
        node: NodeAddress,
        at: NamespaceScope,
        others: &[NodeAddress],
    ) -> Result<()> {
        let NamespaceScope::Node(pid) = at else {
            anyhow::bail!("a node has namespaces of its own");
        };
        let (link, ip, pods) = (node.link(), node.ip(), node.pods());
        let pid = pid.as_raw_nonzero();
        self.ip(&format!(
            "link add {link} type veth peer name eth0 netns {pid}"
        ))?;
        self.ip(&format!("link set {link} master {BRIDGE} up"))?;
        self.ip(&format!("route add {pods} via {ip}"))?;
        let inside = |words: &str| run_ip(&self.site, at, words);
        inside(&format!("address add {ip}/24 dev eth0"))?;
        inside("link set eth0 up")?;
        // Nothing lies behind it, but kubelet wants one.
        inside(&format!("route add default via {}", APISERVER.ip()))?;
        for other in others.iter().filter(|&&other| other != node) {
            inside(&format!("route add {} via {}", other.pods(), other.ip()))?;
        }
        Ok(())
    }

    /// Cuts the link of `node`, or mends it.
    ///
    /// # Errors
    /// When `ip` refuses.
    pub fn set_link(&self, node: NodeAddress, up: bool) -> Result<()> {
        let state = if up { "up" } else { "down" };
        self.ip(&format!("link set {} {state}", node.link()))
    }

    fn ip(&self, words: &str) -> Result<()> {
        run_ip(&self.site, self.place, words)
    }
}

fn run_ip(site: &Site, place: NamespaceScope, words: &str) -> Result<()> {
    let mut line = vec!["ip"];
    line.extend(words.split(' '));
    site.run(place, &line)
        .context("set up the cluster's network")?;
    Ok(())
}
