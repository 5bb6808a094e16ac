//! Ports of a device, their GIDs, and which of them a queue pair uses. Choosing is a pure function;
//! `sysfs.rs` and `device.rs` read the state.

use crate::endpoint::{Gid, Mtu};
use std::net::IpAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    Down,
    /// Up to the switch, but no subnet manager has armed it (InfiniBand).
    Init,
    Armed,
    Active,
    Other(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    InfiniBand,
    /// RoCE.
    Ethernet,
    Other(u8),
}

/// The packet format of a GID (`gid_attrs/types` in sysfs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand, or RoCE version 1 on Ethernet; sysfs has one word for both.
    InfiniBandOrRoceV1,
    /// Routable, over UDP.
    RoceV2,
}

/// One row of a port's GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidEntry {
    pub index: u8,
    pub gid: Gid,
    pub kind: GidKind,
    /// Its network interface; none on InfiniBand.
    pub interface: Option<String>,
}

/// A port's state when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// From 1.
    pub number: u8,
    pub state: PortState,
    pub link_layer: LinkLayer,
    pub active_mtu: Mtu,
    /// Local identifier in an InfiniBand subnet; 0 on Ethernet.
    pub lid: u16,
    pub mbit_per_s: Option<u64>,
    pub message_bytes_max: u32,
    pub gids: Vec<GidEntry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpFamily {
    V4,
    V6,
}

/// What the operator insists on; the rest is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortWish {
    pub port: Option<u8>,
    pub gid_index: Option<u8>,
    /// Of RoCE v2 GIDs. Both ends must use the same.
    pub family: Option<IpFamily>,
}

/// The port and GID that queue pairs use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPort {
    pub number: u8,
    pub link_layer: LinkLayer,
    pub mtu: Mtu,
    pub lid: u16,
    pub gid_index: u8,
    pub gid: Gid,
    pub mbit_per_s: Option<u64>,
    pub message_bytes_max: u32,
}

/// Why a device has no usable port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    #[error("port {port} is not one of the device's {count}")]
    NoSuchPort { port: u8, count: usize },
    #[error(
        "no port is active ({states}): check cable and switch, and on InfiniBand the subnet manager"
    )]
    NoneActive { states: String },
    #[error("port {port} has no GID at index {index}; it has {known}")]
    NoSuchGid { port: u8, index: u8, known: String },
    #[error(
        "port {port} has no usable GID{wished} (it has {known}): give its network interface an \
         address, or name a GID index"
    )]
    NoGid {
        port: u8,
        wished: &'static str,
        known: String,
    },
    #[error("port {port} is neither InfiniBand nor Ethernet (link layer {code})")]
    LinkLayer { port: u8, code: u8 },
}

/// Chooses among a device's ports: those that are active, the fastest of them, the lowest number
/// of these; then its GID.
///
/// # Errors
/// No port is active, or none matches the wish.
pub fn choose_port(ports: &[Port], wish: &PortWish) -> Result<LocalPort, PortError> {
    let wished = |port: &&Port| wish.port.is_none_or(|number| port.number == number);
    let candidates: Vec<&Port> = ports.iter().filter(wished).collect();
    if let (Some(port), true) = (wish.port, candidates.is_empty()) {
        let count = ports.len();
        return Err(PortError::NoSuchPort { port, count });
    }
    let active = candidates.iter().filter(|p| p.state == PortState::Active);
    let best = active.max_by_key(|p| (p.mbit_per_s, std::cmp::Reverse(p.number)));
    let port = best.ok_or_else(|| PortError::NoneActive {
        states: states(&candidates),
    })?;
    let entry = port.choose_gid(wish)?;
    Ok(LocalPort {
        number: port.number,
        link_layer: port.link_layer,
        mtu: port.active_mtu,
        lid: port.lid,
        gid_index: entry.index,
        gid: entry.gid,
        mbit_per_s: port.mbit_per_s,
        message_bytes_max: port.message_bytes_max,
    })
}

fn states(ports: &[&Port]) -> String {
    let each = ports
        .iter()
        .map(|p| format!("port {}: {:?}", p.number, p.state));
    each.collect::<Vec<_>>().join(", ")
}

// === impl Port ===

impl Port {
    fn choose_gid(&self, wish: &PortWish) -> Result<&GidEntry, PortError> {
        let port = self.number;
        if let Some(index) = wish.gid_index {
            let found = self.gids.iter().find(|entry| entry.index == index);
            return found.ok_or_else(|| PortError::NoSuchGid {
                port,
                index,
                known: self.known_gids(),
            });
        }
        let found = match self.link_layer {
            LinkLayer::InfiniBand => self.gids.first(),
            LinkLayer::Ethernet => self.choose_roce_gid(wish.family),
            LinkLayer::Other(code) => return Err(PortError::LinkLayer { port, code }),
        };
        found.ok_or_else(|| PortError::NoGid {
            port,
            wished: match (self.link_layer, wish.family) {
                (LinkLayer::Ethernet, None) => " of RoCE v2",
                (LinkLayer::Ethernet, Some(IpFamily::V4)) => " of RoCE v2 over IPv4",
                (LinkLayer::Ethernet, Some(IpFamily::V6)) => " of RoCE v2 over IPv6",
                (LinkLayer::InfiniBand | LinkLayer::Other(_), _) => "",
            },
            known: self.known_gids(),
        })
    }

    /// IPv4 before IPv6, and both before a link-local address, which ends at the first router.
    /// Version 1 is used only by its index: it is not routable, and every current device has
    /// version 2.
    fn choose_roce_gid(&self, family: Option<IpFamily>) -> Option<&GidEntry> {
        let rank = |entry: &&GidEntry| match entry.gid.ip() {
            IpAddr::V4(_) => 0,
            IpAddr::V6(ip) if !ip.is_unicast_link_local() => 1,
            IpAddr::V6(_) => 2,
        };
        let fits = |entry: &&GidEntry| {
            entry.kind == GidKind::RoceV2 && family.is_none_or(|f| f == entry.gid.family())
        };
        self.gids.iter().filter(fits).min_by_key(rank)
    }

    fn known_gids(&self) -> String {
        if self.gids.is_empty() {
            return "none".to_owned();
        }
        let each = self.gids.iter();
        each.map(|g| format!("{}: {} {:?}", g.index, g.gid, g.kind))
            .collect::<Vec<_>>()
            .join(", ")
    }
}

#[cfg(test)]
mod tests;
