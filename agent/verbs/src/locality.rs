//! Where a device sits in the machine, for choosing among NICs: the closest to a GPU or a core is
//! the fastest for it.

use std::fs;
use std::path::{Path, PathBuf};

/// A device's position, as far as the kernel knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locality {
    /// `None` if memory is uniform, or the kernel does not report a node.
    pub numa_node: Option<u32>,
    /// The device's folder on the bus, below those of its switches and root. `None` for a device
    /// without hardware (Soft-RoCE).
    pub pci_path: Option<PathBuf>,
}

// === impl Locality ===

impl Locality {
    /// Reads a device's entry in the folder of all devices.
    pub(crate) fn read(class: &Path, device: &str) -> Self {
        let link = class.join(device).join("device");
        // The kernel writes -1 for no node.
        let numa_node = fs::read_to_string(link.join("numa_node"))
            .ok()
            .and_then(|text| text.trim_end().parse().ok());
        Self {
            numa_node,
            pci_path: fs::canonicalize(link).ok(),
        }
    }
}

#[cfg(test)]
mod tests;
