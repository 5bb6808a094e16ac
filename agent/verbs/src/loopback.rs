//! Devices within this process, for tests of crates that build on this one; never in a product
//! build.
//!
//! A library below [`Verbs`] that needs no hardware and no kernel: its devices share one fabric,
//! which moves bytes between queue pairs of this process. To this crate they behave like hardware,
//! with these differences:
//! * A write is executed within the call that posts it, on the caller's thread and under one lock
//!   for the whole process, unless its device is frozen or the immediate lacks a receive. This
//!   keeps tests simple and repeatable, and no time passes: finite retries end immediately.
//! * A refused request has written nothing.
//! * There are no dma-bufs and no memory on demand.
//! * A completion queue that overflows ends the process, with a message.
//!
//! Files of devices and completion queues become readable as the kernel's do. A temporary folder,
//! removed with the last device, replaces sysfs.

mod api;
mod carry;
mod class;
mod completion;
mod event_queue;
mod fabric;
mod memory;
mod objects;
mod queue_pair;

use crate::device::{OpenError, Verbs};
use crate::ffi;
use fabric::{Event, Fabric};
use objects::NicId;

/// Devices of one test. Dropping it leaves open devices valid; they only cannot be opened again.
#[derive(Debug)]
pub struct Loopback {
    /// Prepended to each name.
    prefix: String,
    nics: Vec<NicId>,
}

// === impl Loopback ===

impl Loopback {
    /// Creates devices with one port each, which is active, on Ethernet, and has its own RoCE v2
    /// GID. GIDs and full names ([`Loopback::name`]) are unique in the process, so that concurrent
    /// tests do not interfere; devices of two `Loopback`s can be connected like any others.
    ///
    /// # Panics
    /// A name is empty, contains `/` or a zero byte, or is a duplicate; or temporary files cannot
    /// be written.
    pub fn new(devices: &[&str]) -> Self {
        for (i, device) in devices.iter().enumerate() {
            let is_name = !device.is_empty() && !device.contains(['/', '\0']);
            assert!(is_name, "{device:?} is not a device name");
            assert!(!devices[..i].contains(device), "two devices {device}");
        }
        let mut fabric = fabric::lock();
        let prefix = format!("lo{}-", fabric.next_number());
        let nics = devices
            .iter()
            .map(|device| fabric.add_nic(format!("{prefix}{device}")))
            .collect();
        Self { prefix, nics }
    }

    /// The loopback's library, as [`Verbs::open`] has the system's. It lists the devices of all `Loopback`s of the
    /// process.
    ///
    /// # Errors
    /// None.
    pub fn open() -> Result<Verbs, OpenError> {
        Ok(Verbs::over(&api::API, class::folder()))
    }

    /// A device's full name: `lo7-a`.
    pub fn name(&self, device: &str) -> String {
        format!("{}{device}", self.prefix)
    }

    /// Takes a device's link down, or up again. While it is down, so is the port, and writes from
    /// or to the device fail with `IBV_WC_RETRY_EXC_ERR`, those that wait for a receive
    /// immediately. Each change is an event.
    ///
    /// # Panics
    /// There is no such device; this holds for all functions below.
    pub fn cut(&self, device: &str, is_cut: bool) {
        self.turn(device, |fabric, id| {
            let nic = fabric.nic_mut(id);
            if nic.is_removed || nic.is_cut == is_cut {
                return;
            }
            nic.is_cut = is_cut;
            let event = if is_cut {
                ffi::IBV_EVENT_PORT_ERR
            } else {
                ffi::IBV_EVENT_PORT_ACTIVE
            };
            fabric.notify(id, Event::Port(event));
            fabric.progress();
        });
    }

    /// Makes the next `times` connects of a device's queue pairs fail with `ETIMEDOUT`, as the
    /// kernel does when the lookup of the peer's address times out. The queue pairs do not change.
    pub fn lose_peers(&self, device: &str, times: u32) {
        self.turn(device, |fabric, id| fabric.nic_mut(id).unresolved = times);
    }

    /// Freezes a device, or thaws it. A frozen one holds posted writes; when thawed, it executes
    /// them in order of posting, each as if posted now: those of a destroyed queue pair are
    /// dropped, and those to a destroyed peer fail.
    pub fn freeze(&self, device: &str, is_frozen: bool) {
        self.turn(device, |fabric, id| {
            fabric.nic_mut(id).is_frozen = is_frozen;
            fabric.progress();
        });
    }

    /// Removes a device permanently: every later call on it fails with `ENODEV`, requests that it
    /// holds never complete, its files are readable, and the last event is its removal. Destroying
    /// its objects fails too, so memory that was registered on it leaks, as [`crate::MemoryRegion`]
    /// documents. Writes to it fail as those to a device whose link is down.
    pub fn remove(&self, device: &str) {
        self.turn(device, Fabric::pull);
    }

    /// Writes that a frozen device holds; 0 if it is not frozen.
    pub fn held(&self, device: &str) -> usize {
        self.turn(device, |fabric, id| {
            let qps = fabric.qps.iter().filter(|(qp, _)| qp.nic == id);
            if fabric.nic(id).is_frozen {
                qps.map(|(_, qp)| qp.sends.waiting_len()).sum()
            } else {
                0
            }
        })
    }

    /// Writes (not bytes) that reached memory behind this device so far, including empty ones.
    pub fn landed(&self, device: &str) -> u64 {
        self.turn(device, |fabric, id| fabric.nic(id).landed)
    }

    /// Sets a device's NUMA node ([`crate::Device::place`]); without this call it has none, like a
    /// device without hardware.
    ///
    /// # Panics
    /// Temporary files cannot be written.
    pub fn set_numa_node(&self, device: &str, node: u32) {
        self.turn(device, |fabric, id| {
            let nic = fabric.nic(id);
            if !nic.is_removed {
                class::set_numa_node(&nic.name, node).expect("the device's folder can be written");
            }
        });
    }

    fn turn<T>(&self, device: &str, f: impl FnOnce(&mut Fabric, NicId) -> T) -> T {
        let name = self.name(device);
        let mut fabric = fabric::lock();
        let mut nics = self.nics.iter();
        let id = nics.find(|&&id| fabric.nic(id).name == name);
        let &id = id.unwrap_or_else(|| panic!("there is no device {device} among these"));
        f(&mut fabric, id)
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        let mut fabric = fabric::lock();
        for &id in &self.nics {
            fabric.nic_mut(id).is_listed = false;
        }
        fabric.forget_unused_nics();
    }
}

#[cfg(test)]
mod tests;
