//! The address that peers dial where a process listens on all of its addresses: the one from which
//! this machine reaches the world, or the only one it has. Where there is a choice, a person makes
//! it: decode on another node would dial whatever is guessed here, perhaps itself.

use anyhow::{Result, bail};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Reserved for documentation, so they are routed as the world is, and nobody is there.
const WORLD: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9),
    SocketAddr::new(
        IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
        9,
    ),
];

/// `host`, or where that is any address, the one that peers dial.
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
/// No way leads there.
pub(crate) fn address_towards(peer: SocketAddr) -> io::Result<IpAddr> {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // A UDP socket that is connected chooses its address and sends nothing.
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
                 only those on this machine can dial; give --host an address if others shall"
            );
            Ok(loopback)
        }
        several => {
            let several: Vec<String> = several.iter().map(IpAddr::to_string).collect();
            bail!(
                "--host {host}: this machine has no default route and several addresses ({}); give \
                 --host the one that the other side of the pair dials",
                several.join(", ")
            )
        }
    }
}

/// This machine's own, without loopback, as the kernel's routing table has them: an address, and in
/// a line below it that it is a local one.
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
    // The table of all routes and that of local ones both have them.
    addresses.dedup();
    addresses
}

/// This machine's own of global scope: address, interface's index, prefix, scope, flags, name.
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
