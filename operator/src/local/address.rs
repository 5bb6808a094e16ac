//! Loopback addresses: each pod has one of its own, so that all pods can use the same ports, as
//! they would on a cluster.

use sha2::{Digest, Sha256};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

/// Second octets that deployments spread over. 127.0 is everyone's, and 127.32 to 127.223 are left
/// to tests.
const SECOND_OCTETS: std::ops::RangeInclusive<u8> = 1..=31;

/// The /24 of one deployment, 127.x.y.0, and how far it has been handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subnet {
    prefix: [u8; 3],
    next: u8,
}

/// Why no address is left for a pod.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no address of {subnet}/24 has ports {ports:?} free; stop what listens there, or give the \
     deployment another name"
)]
pub(crate) struct SubnetFull {
    subnet: Ipv4Addr,
    ports: Vec<u16>,
}

// === impl Subnet ===

impl Subnet {
    /// A deployment's subnet: the same at every start, another for another name.
    pub(crate) fn of(namespace: &str, name: &str) -> Self {
        let digest = Sha256::digest(format!("{namespace}/{name}"));
        let span = SECOND_OCTETS.end() - SECOND_OCTETS.start() + 1;
        Self {
            prefix: [127, SECOND_OCTETS.start() + digest[0] % span, digest[1]],
            next: 1,
        }
    }

    /// The next address on which `is_free` finds all ports; addresses go round, so that one that
    /// was just left rests longest.
    pub(crate) fn take(
        &mut self,
        ports: &[u16],
        in_use: &[IpAddr],
        is_free: impl Fn(SocketAddr) -> bool,
    ) -> Result<IpAddr, SubnetFull> {
        for _ in 1..=254 {
            let address = self.address(self.next);
            self.next = if self.next == 254 { 1 } else { self.next + 1 };
            let free = |port: &u16| is_free(SocketAddr::new(address, *port));
            if !in_use.contains(&address) && ports.iter().all(free) {
                return Ok(address);
            }
        }
        let IpAddr::V4(subnet) = self.address(0) else {
            unreachable!("a loopback subnet is IPv4")
        };
        Err(SubnetFull {
            subnet,
            ports: ports.to_vec(),
        })
    }

    fn address(&self, host: u8) -> IpAddr {
        let [a, b, c] = self.prefix;
        Ipv4Addr::new(a, b, c, host).into()
    }
}

/// Whether nothing listens on an address now.
pub(crate) fn is_free(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_ok()
}

/// An address with a port that nothing listens on now.
pub(crate) fn choose_port(address: IpAddr) -> std::io::Result<SocketAddr> {
    TcpListener::bind((address, 0))?.local_addr()
}

#[cfg(test)]
mod tests;
