//! The address that peers dial when a process listens on all addresses: the one from which this
//! machine reaches the world, or its only one. If there is a choice, the user makes it: decode on
//! another node would dial a wrong guess, perhaps itself.

use anyhow::{Result, bail};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Reserved for documentation, so they take the default route and have no host.
const WORLD: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9),
    SocketAddr::new(
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        9,
    ),
];

/// `host`, or the address that peers dial if that is unspecified.
///
/// # Errors
/// The machine has several addresses and no default route.
pub(crate) fn own_address(host: IpAddr) -> Result<IpAddr> {
    if !host.is_unspecified() {
        return Ok(host);
    }
    if let Some(address) = WORLD
        .into_iter()
        .find_map(|world| address_towards(world).ok())
    {
        return Ok(address);
    }
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let v4 = v4_addresses(&read("/proc/net/fib_trie"));
    let v6 = v6_addresses(&read("/proc/net/if_inet6"));
    only(host, &[v4, v6].concat())
}

/// The address that this machine reaches `peer` from.
///
/// # Errors
/// There is no route to it.
pub(crate) fn address_towards(peer: SocketAddr) -> io::Result<IpAddr> {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // Connecting a UDP socket selects its address and sends nothing.
    let socket = UdpSocket::bind(any)?;
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

fn only(host: IpAddr, addresses: &[IpAddr]) -> Result<IpAddr> {
    match addresses {
        [address] => Ok(*address),
        [] => {
            let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
            tracing::warn!(
                "--host {host}: this machine has no network, so peers are given {loopback}, which \
                 only those on this machine can dial; set --host to an address that other machines can dial"
            );
            Ok(loopback)
        }
        several => {
            let several: Vec<String> = several.iter().map(IpAddr::to_string).collect();
            bail!(
                "--host {host}: this machine has no default route and several addresses ({}); give \
                 --host the one that peers dial",
                several.join(", ")
            )
        }
    }
}

/// This machine's IPv4 addresses without loopback, from the kernel's routing table: an address, and
/// in a later line that it is local.
fn v4_addresses(fib_trie: &str) -> Vec<IpAddr> {
    let mut addresses = Vec::new();
    let mut last = None;
    for line in fib_trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = last.filter(|address| !address.is_loopback())
        {
            addresses.push(IpAddr::V4(address));
        }
    }
    addresses.sort_unstable();
    // The main and the local table both list them.
    addresses.dedup();
    addresses
}

/// This machine's global IPv6 addresses: address, interface index, prefix, scope, flags, name.
fn v6_addresses(if_inet6: &str) -> Vec<IpAddr> {
    let global = if_inet6.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let bits = u128::from_str_radix(fields.next()?, 16).ok()?;
        (fields.nth(2)? == "00").then(|| IpAddr::V6(Ipv6Addr::from_bits(bits)))
    });
    global.collect()
}

#[cfg(test)]
mod tests;
