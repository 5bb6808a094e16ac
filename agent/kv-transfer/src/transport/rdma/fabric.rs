//! This rank's NICs, each with all of the rank's memory registered.

use super::immediate::ROWS_MAX;
use crate::config::RdmaConfig;
use crate::memory::Region;
use pd_protocol::control::{NicInfo, RegionKey};
use pd_verbs::{
    CallError, ChooseError, Device, DmaBuf, HostMemory, LinkLayer, LocalPort, MemoryRegion,
    OpenError, PathOptions, PortWish, ProtectionDomain, Registration, Retry, Verbs,
};
use std::os::fd::AsFd;
use std::sync::Arc;

/// As often as devices can: Soft-RoCE retries without end, and under loss 6 are not enough there. A rail
/// that is silent for too long is given up by its writer.
const RETRIES: u8 = 7;
/// A probe fills the largest packet: where a switch takes less than its NICs, it does not come.
pub(crate) const PROBE_BYTES: u32 = 4096;
/// Without end: a decode rank that is short of receives has them soon.
const RNR_RETRIES: u8 = 7;

/// The NICs, at least one, in order of preference.
pub(crate) struct Fabric {
    pub(crate) nics: Vec<Arc<Nic>>,
    pub(crate) config: RdmaConfig,
}

pub(crate) struct Nic {
    pub(crate) device: Device,
    pub(crate) domain: ProtectionDomain,
    pub(crate) local: LocalPort,
    /// In the numbering of plans.
    pub(crate) regions: Vec<MemoryRegion>,
    /// Ranges that one write can gather.
    pub(crate) gather_max: usize,
    /// Where probes go.
    scratch: MemoryRegion,
}

/// What is registered with each NIC.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    /// In the numbering of plans.
    pub(crate) regions: &'a [Region],
    /// By peers: decode's is, prefill's is only read.
    pub(crate) is_written: bool,
}

/// Why this rank has no RDMA.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{device}: {reason}")]
    Nic { device: String, reason: NicError },
    #[error("none of the RDMA devices can be used: {0}")]
    None(String),
    #[error(
        "{rows} metadata rows, but an immediate can name {ROWS_MAX}; lower the running requests"
    )]
    Rows { rows: u32 },
}

/// Why a device is not used.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Port(#[from] ChooseError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("GPU memory is not reachable for a NIC: {0}")]
    DmaBuf(String),
}

// === impl Fabric ===

impl Fabric {
    /// Opens the devices that are named, or those that are near, and registers `regions` with each.
    ///
    /// # Errors
    /// One that is named cannot be used, or none can.
    pub(crate) fn open(
        verbs: Verbs,
        config: &RdmaConfig,
        memory: Memory<'_>,
    ) -> Result<Self, FabricError> {
        let mut nics = Vec::new();
        if config.devices.is_empty() {
            let mut reasons = Vec::new();
            for device in near(places(verbs)?, own_node()) {
                match Nic::open(verbs, &device, config, memory) {
                    Ok(nic) => nics.push(Arc::new(nic)),
                    Err(reason) => {
                        tracing::warn!(device, %reason, "skipped an RDMA device");
                        reasons.push(format!("{device}: {reason}"));
                    }
                }
            }
            if nics.is_empty() {
                return Err(FabricError::None(reasons.join("; ")));
            }
        }
        for device in &config.devices {
            let nic = Nic::open(verbs, device, config, memory);
            nics.push(Arc::new(nic.map_err(|reason| FabricError::Nic {
                device: device.clone(),
                reason,
            })?));
        }
        for nic in &nics {
            let NicInfo {
                device,
                gid,
                mbit_per_s,
                ..
            } = nic.info();
            let relaxed = nic.regions.iter().all(MemoryRegion::has_relaxed_ordering);
            tracing::info!(device, %gid, mbit_per_s, relaxed, "registered memory with an RDMA device");
        }
        Ok(Self {
            nics,
            config: config.clone(),
        })
    }

    /// Ranges that a write can gather on every NIC.
    pub(crate) fn gather_max(&self) -> usize {
        let each = self.nics.iter().map(|nic| nic.gather_max);
        each.min().unwrap_or(1)
    }

    pub(crate) fn infos(&self) -> Vec<NicInfo> {
        self.nics.iter().map(|nic| nic.info()).collect()
    }

    pub(crate) fn path(&self) -> PathOptions {
        PathOptions {
            traffic_class: self.config.traffic_class,
            service_level: self.config.service_level,
        }
    }

    pub(crate) fn retry(&self) -> Retry {
        Retry {
            retries: RETRIES,
            rnr_retries: RNR_RETRIES,
            ..Retry::default()
        }
    }

    /// Which NIC here goes with which there: each side's in its order, round and round until all of
    /// the larger side have one. Both sides of a cluster with one switch per NIC number (rails) meet
    /// this way. NICs that cannot meet are left out.
    pub(crate) fn pairs(&self, peer: &[NicInfo]) -> Vec<(usize, usize)> {
        if peer.is_empty() {
            return Vec::new();
        }
        let own = self.infos();
        let pairs = (0..own.len().max(peer.len())).map(|i| (i % own.len(), i % peer.len()));
        pairs
            .filter(|&(here, there)| can_meet(&own[here], &peer[there]))
            .collect()
    }
}

/// The devices with the NUMA node that each is on.
fn places(verbs: Verbs) -> Result<Vec<(String, Option<u32>)>, OpenError> {
    let names = verbs.device_names()?.into_iter();
    let places = names.map(|name| {
        let device = verbs.open_device(&name).ok();
        (name, device.and_then(|device| device.locality().numa_node))
    });
    Ok(places.collect())
}

/// The devices on the node of this process's memory, if there are any; else all.
fn near(devices: Vec<(String, Option<u32>)>, own: Option<u32>) -> Vec<String> {
    let is_near = |node: &Option<u32>| own.is_some() && *node == own;
    let any_near = devices.iter().any(|(_, node)| is_near(node));
    let kept = devices
        .into_iter()
        .filter(|(_, node)| !any_near || is_near(node));
    kept.map(|(name, _)| name).collect()
}

/// The NUMA node of this process's memory, where it may have it on one only: as cpusets say.
fn own_node() -> Option<u32> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mut lines = status.lines();
    lines
        .find_map(|line| line.strip_prefix("Mems_allowed_list:"))?
        .trim()
        .parse()
        .ok()
}

/// Whether two NICs may be on one fabric; whether they are, only a probe shows.
fn can_meet(a: &NicInfo, b: &NicInfo) -> bool {
    let family = |nic: &NicInfo| nic.gid.to_canonical().is_ipv4();
    a.ethernet == b.ethernet && (!a.ethernet || family(a) == family(b))
}

// === impl Nic ===

impl Nic {
    fn open(
        verbs: Verbs,
        name: &str,
        config: &RdmaConfig,
        memory: Memory<'_>,
    ) -> Result<Self, NicError> {
        let device = verbs.open_device(name)?;
        let wish = PortWish {
            gid_index: config.gid_index,
            ..PortWish::default()
        };
        let local = device.choose_port(&wish)?;
        let domain = ProtectionDomain::new(&device)?;
        let registration = Registration {
            remote_write: memory.is_written,
            relaxed_ordering: true,
        };
        let regions = memory.regions.iter();
        let registered = regions.map(|region| register(&domain, region, registration));
        let scratch = Arc::new(HostMemory::zeroed(PROBE_BYTES as usize));
        let ranges_max = device.capabilities()?.ranges_max as usize;
        Ok(Self {
            gather_max: config.gather_max.min(ranges_max).max(1),
            regions: registered.collect::<Result<_, _>>()?,
            scratch: domain.register(scratch, registration)?,
            device,
            domain,
            local,
        })
    }

    pub(crate) fn info(&self) -> NicInfo {
        NicInfo {
            device: self.device.name().to_owned(),
            ethernet: self.local.link_layer == LinkLayer::Ethernet,
            gid: self.local.gid.into(),
            mbit_per_s: self.local.mbit_per_s,
        }
    }

    /// What a peer needs to write to the regions, and to the place for probes.
    pub(crate) fn keys(&self) -> Vec<RegionKey> {
        let regions = self.regions.iter().chain([&self.scratch]);
        regions
            .map(|region| super::conversion::to_key(region.remote()))
            .collect()
    }
}

/// Host memory whole, a device's by its dma-buf.
fn register(
    domain: &ProtectionDomain,
    region: &Region,
    registration: Registration,
) -> Result<MemoryRegion, NicError> {
    let Some(memory) = region.as_device() else {
        let host = region.as_host().expect("what is no device's is the host's");
        return Ok(domain.register(host.clone(), registration)?);
    };
    let file = memory.dma_buf().map_err(NicError::DmaBuf)?;
    let buffer = DmaBuf {
        file: file.as_fd(),
        offset: 0,
        len: memory.len(),
        addr: memory.addr(),
    };
    Ok(domain.register_dma_buf(buffer, registration)?)
}

#[cfg(test)]
mod tests {
    //! Facts about the choice of devices, and which meet which.

    use super::*;

    fn near_of(nodes: &[Option<u32>], own: Option<u32>) -> String {
        let names = ["a", "b", "c"].map(str::to_owned).into_iter();
        near(names.zip(nodes.iter().copied()).collect(), own).join("")
    }

    #[test]
    fn devices_of_the_own_node_are_taken_where_there_are_any() {
        assert_eq!(near_of(&[Some(0), Some(1), Some(1)], Some(1)), "bc");
        assert_eq!(near_of(&[Some(0), Some(0)], Some(1)), "ab", "none is near");
        assert_eq!(
            near_of(&[Some(0), Some(1)], None),
            "ab",
            "memory is anywhere"
        );
        assert_eq!(near_of(&[None, None], Some(0)), "ab", "the node is unknown");
    }

    #[test]
    fn only_nics_of_one_kind_meet() {
        let nic = |ethernet, gid: &str| NicInfo {
            device: String::new(),
            ethernet,
            gid: gid.parse().expect("a GID"),
            mbit_per_s: None,
        };
        let v4 = nic(true, "::ffff:10.0.0.1");
        assert!(can_meet(&v4, &nic(true, "::ffff:10.9.0.1")));
        assert!(!can_meet(&v4, &nic(true, "fd00::1")));
        assert!(!can_meet(&v4, &nic(false, "fe80::1")));
        assert!(can_meet(&nic(false, "fe80::2"), &nic(false, "fd00::1")));
    }
}
