//! The path of packets to the peer, and how long a queue pair retries: pure functions of both ends.

use crate::endpoint::{Endpoint, Gid, Mtu};
use crate::ffi;
use crate::port::{LinkLayer, LocalPort};
use std::time::Duration;

/// Routers that a RoCE or InfiniBand packet may pass.
const HOPS_MAX: u8 = 64;

/// Marks on the packets of a queue pair, for the fabric's quality of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathOptions {
    /// The IP header's traffic class (DSCP in its upper six bits).
    pub traffic_class: u8,
    /// InfiniBand's service level.
    pub service_level: u8,
}

/// How often a queue pair retries before a request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Time to wait for an acknowledgement: 4.096 µs · 2^this; 1 to 31.
    pub ack_timeout: u8,
    /// Times that a packet is sent again without an answer; at most 7, which Soft-RoCE treats as
    /// unlimited.
    pub retries: u8,
    /// Times that an immediate is sent again to a peer without a posted receive; 7 means without
    /// limit.
    pub rnr_retries: u8,
}

/// Why two ends cannot be connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the peer sent no GID, and RoCE has no other address")]
    NoGid,
    #[error("the peer sent no LID: its InfiniBand port has no subnet manager, or it is on RoCE")]
    NoLid,
    #[error(
        "our GID {local} and the peer's {remote} are of two address families: choose the same \
         family on both ends"
    )]
    Families { local: Gid, remote: Gid },
    #[error("port {port} is neither InfiniBand nor Ethernet (link layer {code})")]
    LinkLayer { port: u8, code: u8 },
}

// === impl Retry ===

impl Default for Retry {
    /// 67 ms, 6 times: a request to a dead peer fails within two seconds, since devices may wait up
    /// to four times as long; lost packets and short link failures are tolerated.
    fn default() -> Self {
        Self {
            ack_timeout: 14,
            retries: 6,
            rnr_retries: 6,
        }
    }
}

impl Retry {
    /// When a request to a silent peer has failed at the latest: the specification lets a device
    /// wait four times the timeout, and the first attempt is not a retry.
    pub fn gives_up_after(&self) -> Duration {
        let wait = Duration::from_nanos(4096 << self.ack_timeout.min(31));
        wait * 4 * (u32::from(self.retries) + 1)
    }
}

/// The payload per packet that both ends and their links carry.
pub(crate) fn path_mtu(local: &LocalPort, remote: &Endpoint) -> Mtu {
    local.mtu.min(remote.mtu)
}

/// The path from a port to the peer.
pub(crate) fn address(
    local: &LocalPort,
    remote: &Endpoint,
    options: PathOptions,
) -> Result<ffi::AhAttr, PathError> {
    let global = ffi::GlobalRoute {
        dgid: ffi::Gid { raw: remote.gid.0 },
        flow_label: 0,
        sgid_index: local.gid_index,
        hop_limit: HOPS_MAX,
        traffic_class: options.traffic_class,
    };
    let direct = ffi::AhAttr {
        dlid: remote.lid,
        sl: options.service_level,
        port_num: local.number,
        ..ffi::AhAttr::default()
    };
    let routed = ffi::AhAttr {
        grh: global,
        is_global: 1,
        ..direct
    };
    match local.link_layer {
        LinkLayer::Ethernet if remote.gid == Gid::ZERO => Err(PathError::NoGid),
        LinkLayer::Ethernet if local.gid.family() != remote.gid.family() => {
            Err(PathError::Families {
                local: local.gid,
                remote: remote.gid,
            })
        }
        LinkLayer::Ethernet => Ok(routed),
        LinkLayer::InfiniBand if remote.lid == 0 => Err(PathError::NoLid),
        // Within a subnet the LID is enough, and the global header would cost 40 bytes a packet.
        LinkLayer::InfiniBand if local.gid.subnet_prefix() == remote.gid.subnet_prefix() => {
            Ok(direct)
        }
        LinkLayer::InfiniBand => Ok(routed),
        LinkLayer::Other(code) => Err(PathError::LinkLayer {
            port: local.number,
            code,
        }),
    }
}

#[cfg(test)]
mod tests;
