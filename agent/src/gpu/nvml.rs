//! Reads GPUs through NVML, the library of NVIDIA's driver, opened at run time. Any call may take
//! seconds, so callers use a dedicated thread.

use super::field::Field;
use super::health::is_fatal;
use super::visible::is_visible;
use super::{Gpu, Identity};
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, EventSet, Nvml};

/// The GPUs of this process, watched from construction on.
#[derive(Debug)]
pub(super) struct Reader<'nvml>(Vec<Watched<'nvml>>);

#[derive(Debug)]
struct Watched<'nvml> {
    device: Device<'nvml>,
    identity: Identity,
    /// `None` if the driver reports no Xids to this process.
    events: Option<EventSet<'nvml>>,
    xids: Xids,
}

/// The Xids that have occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Xids {
    last: u64,
    fatal: Option<u64>,
}

/// Events taken at a time: NVML attaches the newest Xid to each of them.
const EVENTS_MAX: usize = 32;
/// Stands for an Xid that the driver cannot name.
const XID_UNKNOWN: u64 = 999;
/// Links of the widest GPU so far; NVML reports further ones as nonexistent.
const NVLINKS_MAX: u32 = 18;

/// The name under which drivers install it and the container toolkit mounts it.
pub(super) const LIBRARY: &str = "libnvidia-ml.so.1";

/// Opens the driver's library.
///
/// # Errors
/// When the library is missing, or there is no driver behind it.
pub(super) fn open(library: &str) -> Result<Nvml, NvmlError> {
    Nvml::builder().lib_path(library.as_ref()).init()
}

// === impl Reader ===

impl<'nvml> Reader<'nvml> {
    /// The GPUs that `cuda`, the value of `CUDA_VISIBLE_DEVICES`, leaves visible to this process.
    ///
    /// # Errors
    /// When NVML cannot count GPUs. A GPU that it cannot open is left out.
    pub(super) fn new(nvml: &'nvml Nvml, cuda: Option<&str>) -> Result<Self, NvmlError> {
        let mut devices = Vec::new();
        for index in 0..nvml.device_count()? {
            let opened = nvml.device_by_index(index).and_then(|device| {
                let identity = identity(&device, index)?;
                Ok((device, identity))
            });
            match opened {
                Ok(opened) => devices.push(opened),
                Err(why) => tracing::warn!("cannot read GPU {index}: {why}"),
            }
        }
        let all: Vec<Identity> = devices.iter().map(|(_, gpu)| gpu.clone()).collect();
        devices.retain(|(_, gpu)| is_visible(gpu, &all, cuda));
        let watched = devices.into_iter().map(|(device, identity)| Watched {
            events: watch(nvml, &device),
            device,
            identity,
            xids: Xids::default(),
        });
        Ok(Self(watched.collect()))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn read(&mut self) -> Vec<Gpu> {
        self.0.iter_mut().map(Watched::read).collect()
    }
}

fn identity(device: &Device<'_>, index: u32) -> Result<Identity, NvmlError> {
    Ok(Identity {
        index,
        uuid: device.uuid()?,
        pci_bus_id: device.pci_info().map(|pci| pci.bus_id).unwrap_or_default(),
        minor: device.minor_number().ok(),
        model: device.name().unwrap_or_default(),
    })
}

/// One set per GPU: a GPU that refuses must not affect the others.
fn watch<'nvml>(nvml: &'nvml Nvml, device: &Device<'nvml>) -> Option<EventSet<'nvml>> {
    let events = nvml.create_event_set().ok()?;
    let registered = device.register_events(EventTypes::CRITICAL_XID_ERROR, events);
    registered.ok()
}

// === impl Watched ===

impl Watched<'_> {
    fn read(&mut self) -> Gpu {
        self.take_events();
        let mut gpu = Gpu {
            identity: self.identity.clone(),
            fatal_xid: self.xids.fatal,
            ..Gpu::default()
        };
        for field in Field::ALL {
            match self.value(field) {
                Ok(value) if field.is_plausible(value) => {
                    gpu.fields.insert(field, value);
                }
                Ok(_) => {}
                Err(why) => gpu.lost |= is_loss(&why),
            }
        }
        gpu
    }

    fn take_events(&mut self) {
        let Some(events) = &self.events else { return };
        for _ in 0..EVENTS_MAX {
            // No wait; the error means that no event is pending.
            let Ok(event) = events.wait(0) else { return };
            match event.event_data {
                Some(XidError::Value(xid)) => self.xids.come(xid),
                Some(XidError::Unknown) => self.xids.come(XID_UNKNOWN),
                None => {}
            }
        }
    }

    /// 0 before the first.
    fn last_xid(&self) -> Result<u64, NvmlError> {
        let last = self.events.is_some().then_some(self.xids.last);
        last.ok_or(NvmlError::NotSupported)
    }

    /// In NVML's unit.
    fn value(&self, field: Field) -> Result<u64, NvmlError> {
        let device = &self.device;
        let nvlinks = |counter| nvlink_errors(device, counter);
        let ecc = |error| device.total_ecc_errors(error, EccCounter::Volatile);
        Ok(match field {
            Field::SmClock => device.clock_info(Clock::SM)?.into(),
            Field::MemClock => device.clock_info(Clock::Memory)?.into(),
            Field::GpuTemp => device.temperature(TemperatureSensor::Gpu)?.into(),
            Field::PowerUsage => device.power_usage()?.into(),
            Field::TotalEnergyConsumption => device.total_energy_consumption()?,
            Field::GpuUtil => device.utilization_rates()?.gpu.into(),
            Field::MemCopyUtil => device.utilization_rates()?.memory.into(),
            Field::FbFree => device.memory_info()?.free,
            Field::FbUsed => device.memory_info()?.used,
            Field::ClocksEventReasons => device.current_throttle_reasons()?.bits(),
            Field::EccSbeVolTotal => ecc(MemoryError::Corrected)?,
            Field::EccDbeVolTotal => ecc(MemoryError::Uncorrected)?,
            Field::XidErrors => self.last_xid()?,
            Field::PcieReplayCounter => device.pcie_replay_counter()?.into(),
            Field::NvlinkReplayErrors => nvlinks(ErrorCounter::DlReplay)?,
            Field::NvlinkRecoveryErrors => nvlinks(ErrorCounter::DlRecovery)?,
            Field::NvlinkCrcFlitErrors => nvlinks(ErrorCounter::DlCrcFlit)?,
            Field::NvlinkCrcDataErrors => nvlinks(ErrorCounter::DlCrcData)?,
        })
    }
}

/// Summed over all links that are up.
fn nvlink_errors(device: &Device<'_>, counter: ErrorCounter) -> Result<u64, NvmlError> {
    let links = (0..NVLINKS_MAX).map(|link| device.link_wrapper_for(link));
    let up = links.filter(|link| link.is_active().unwrap_or(false));
    let counts = up.map(|link| link.error_counter(counter));
    let counts: Vec<u64> = counts.collect::<Result<_, _>>()?;
    let total = counts
        .iter()
        .fold(0u64, |sum, count| sum.saturating_add(*count));
    (!counts.is_empty())
        .then_some(total)
        .ok_or(NvmlError::NotSupported)
}

/// Whether an error means that the GPU is gone, or unusable before a reset.
fn is_loss(why: &NvmlError) -> bool {
    matches!(why, NvmlError::GpuLost | NvmlError::ResetRequired)
}

// === impl Xids ===

impl Xids {
    /// Records an Xid. Programs on a failing GPU cause Xids of their own, which must not hide its
    /// fault.
    fn come(&mut self, xid: u64) {
        self.last = xid;
        if is_fatal(xid) {
            self.fatal = Some(xid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let error = open("libnvidia-ml.so.none").unwrap_err().to_string();
        assert!(error.contains("libnvidia-ml.so.none"), "{error}");
    }

    #[test]
    fn the_last_xid_is_reported_and_a_fatal_one_is_remembered() {
        let mut xids = Xids::default();
        xids.come(13);
        assert_eq!((xids.last, xids.fatal), (13, None));
        xids.come(79);
        xids.come(45);
        assert_eq!((xids.last, xids.fatal), (45, Some(79)));
    }
}
