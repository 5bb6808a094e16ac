//! The GPUs of this process, read by NVML and exported under the names of NVIDIA's DCGM exporter.
//! The driver is opened at run time: without one these metrics are absent.
//!
//! Life of a value: [`nvml`] reads it on its own thread → [`sampler`] keeps the newest → [`health`]
//! judges it and [`export`] writes it, both functions of plain [`Gpu`]s.

pub(crate) mod export;
pub(crate) mod field;
mod health;
mod nvml;
pub(crate) mod sampler;
mod visible;

use field::Field;
use std::collections::BTreeMap;

/// One GPU at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub(crate) identity: Identity,
    /// In NVML's units. A field that the GPU does not support, or reports implausibly, is absent.
    pub(crate) fields: BTreeMap<Field, u64>,
    /// The newest Xid that needs a reset or a repair.
    pub(crate) fatal_xid: Option<u64>,
    /// The driver cannot reach it any more, or does not answer.
    pub(crate) lost: bool,
}

/// What identifies a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Index among the GPUs that NVML shows to this process.
    pub(crate) index: u32,
    /// `GPU-` and five groups of hexadecimal digits.
    pub(crate) uuid: String,
    pub(crate) pci_bus_id: String,
    /// Minor number of its device file, `/dev/nvidiaMINOR`.
    pub(crate) minor: Option<u32>,
    pub(crate) model: String,
}
