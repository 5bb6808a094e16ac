//! A device's entry in `/sys/class/infiniband`: the GID table with its kinds, and a port's speed.
//! The library has calls for these only since rdma-core 32.

use crate::endpoint::Gid;
use crate::port::{GidEntry, GidKind};
use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

pub(crate) const CLASS: &str = "/sys/class/infiniband";

/// The folder of one port.
#[derive(Clone, Debug)]
pub(crate) struct PortFolder(PathBuf);

// === impl PortFolder ===

impl PortFolder {
    pub(crate) fn new(class: &Path, device: &str, port: u8) -> Self {
        Self(class.join(device).join("ports").join(port.to_string()))
    }

    fn read(&self, file: &str) -> Option<String> {
        let text = fs::read_to_string(self.0.join(file)).ok()?;
        Some(text.trim_end().to_owned())
    }

    /// The first `len` rows of the GID table, without the empty ones.
    pub(crate) fn gids(&self, len: u8) -> Vec<GidEntry> {
        (0..len).filter_map(|index| self.gid(index)).collect()
    }

    fn gid(&self, index: u8) -> Option<GidEntry> {
        let gid: Ipv6Addr = self.read(&format!("gids/{index}"))?.parse().ok()?;
        let gid = Gid::from(gid);
        if gid == Gid::ZERO {
            return None;
        }
        // An empty row's kind cannot be read; nor can any on a kernel without the file.
        let kind = match self.read(&format!("gid_attrs/types/{index}")).as_deref() {
            Some("RoCE v2") => GidKind::RoceV2,
            Some(_) | None => GidKind::InfiniBandOrRoceV1,
        };
        let interface = self.read(&format!("gid_attrs/ndevs/{index}"));
        Some(GidEntry {
            index,
            gid,
            kind,
            interface: interface.filter(|name| !name.is_empty()),
        })
    }

    pub(crate) fn mbit_per_s(&self) -> Option<u64> {
        parse_rate(&self.read("rate")?)
    }
}

/// `100 Gb/sec (4X EDR)`, `2.5 Gb/sec (1X SDR)`, in Mbit/s.
fn parse_rate(text: &str) -> Option<u64> {
    let (number, _) = text.split_once(" Gb/sec")?;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u64 = whole.parse().ok()?;
    let tenths: u64 = tenths.get(..1)?.parse().ok()?;
    whole.checked_mul(1000)?.checked_add(tenths * 100)
}

#[cfg(test)]
mod tests;
