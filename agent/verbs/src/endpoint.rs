//! What two ends of a connection exchange before they can use RDMA.

use crate::port::IpFamily;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Queue pair numbers and packet sequence numbers have 24 bits.
const BITS_24: u32 = (1 << 24) - 1;

/// A port's global identifier. On RoCE it is an IP address, IPv4 as `::ffff:a.b.c.d`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Ipv6Addr", from = "Ipv6Addr")]
pub struct Gid(pub [u8; 16]);

/// Payload bytes of a packet. The discriminants are the library's (`enum ibv_mtu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u16", try_from = "u16")]
pub enum Mtu {
    B256 = 1,
    B512 = 2,
    B1024 = 3,
    B2048 = 4,
    B4096 = 5,
}

/// One end of a reliable connection. It travels to the peer over the control plane; a peer's
/// endpoint is validated when it is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stated")]
pub struct Endpoint {
    pub(crate) qp_num: u32,
    /// Number of the first packet that this end sends.
    pub(crate) psn: u32,
    /// 0 on Ethernet.
    pub(crate) lid: u16,
    pub(crate) gid: Gid,
    pub(crate) mtu: Mtu,
}

/// An endpoint as received.
#[derive(Deserialize)]
struct Stated {
    qp_num: u32,
    psn: u32,
    lid: u16,
    gid: Gid,
    mtu: Mtu,
}

/// Why a peer's endpoint is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("{field} {value} does not fit into 24 bits")]
    TooWide { field: &'static str, value: u32 },
    #[error("an MTU is 256, 512, 1024, 2048 or 4096 bytes, not {bytes}")]
    Mtu { bytes: u16 },
}

// === impl Gid ===

impl Gid {
    pub(crate) const ZERO: Self = Self([0; 16]);

    /// The IP address that it is on RoCE.
    pub fn ip(self) -> IpAddr {
        Ipv6Addr::from(self).to_canonical()
    }

    pub(crate) fn family(self) -> IpFamily {
        match self.ip() {
            IpAddr::V4(_) => IpFamily::V4,
            IpAddr::V6(_) => IpFamily::V6,
        }
    }

    /// Its subnet on InfiniBand.
    pub(crate) fn subnet_prefix(self) -> [u8; 8] {
        let [prefix, _] = [&self.0[..8], &self.0[8..]];
        prefix.try_into().expect("half of 16 bytes")
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(ip: Ipv6Addr) -> Self {
        Self(ip.octets())
    }
}

impl From<Gid> for Ipv6Addr {
    fn from(gid: Gid) -> Self {
        Self::from(gid.0)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(*self).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl Mtu ===

impl Mtu {
    const ALL: [Self; 5] = [
        Self::B256,
        Self::B512,
        Self::B1024,
        Self::B2048,
        Self::B4096,
    ];

    pub fn bytes(self) -> u16 {
        128 << self.code()
    }

    pub(crate) fn code(self) -> u32 {
        self as u32
    }

    pub(crate) fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.code() == code)
    }
}

impl From<Mtu> for u16 {
    fn from(mtu: Mtu) -> Self {
        mtu.bytes()
    }
}

impl TryFrom<u16> for Mtu {
    type Error = EndpointError;

    fn try_from(bytes: u16) -> Result<Self, EndpointError> {
        let found = Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes);
        found.ok_or(EndpointError::Mtu { bytes })
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// A peer's end as received; `mtu` in bytes.
    ///
    /// # Errors
    /// No device can have such an end.
    pub fn new(
        qp_num: u32,
        psn: u32,
        lid: u16,
        gid: impl Into<Gid>,
        mtu: u16,
    ) -> Result<Self, EndpointError> {
        Self::try_from(Stated {
            qp_num,
            psn,
            lid,
            gid: gid.into(),
            mtu: mtu.try_into()?,
        })
    }

    pub fn qp_num(&self) -> u32 {
        self.qp_num
    }

    /// Number of the first packet that this end sends.
    pub fn psn(&self) -> u32 {
        self.psn
    }

    /// 0 on Ethernet.
    pub fn lid(&self) -> u16 {
        self.lid
    }

    pub fn gid(&self) -> Gid {
        self.gid
    }

    pub fn mtu(&self) -> Mtu {
        self.mtu
    }
}

impl TryFrom<Stated> for Endpoint {
    type Error = EndpointError;

    fn try_from(stated: Stated) -> Result<Self, EndpointError> {
        let Stated {
            qp_num,
            psn,
            lid,
            gid,
            mtu,
        } = stated;
        for (field, value) in [("qp_num", qp_num), ("psn", psn)] {
            if value > BITS_24 {
                return Err(EndpointError::TooWide { field, value });
            }
        }
        Ok(Self {
            qp_num,
            psn,
            lid,
            gid,
            mtu,
        })
    }
}

/// Masks a random number to a packet sequence number.
pub(crate) fn psn(random: u32) -> u32 {
    random & BITS_24
}

#[cfg(test)]
mod tests;
