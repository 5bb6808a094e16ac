//! What the GPUs of this process say of themselves, read by NVML and exported under the names of
//! NVIDIA's DCGM exporter. The driver is opened at run time: without one there are no such metrics.
//!
//! Life of a figure: [`nvml`] reads it on a thread of its own → [`sampler`] keeps the newest →
//! [`health`] judges and [`export`] writes it, both functions of plain [`Gpu`]s.

pub(crate) mod export;
pub(crate) mod field;
mod health;
mod nvml;
pub(crate) mod sampler;
mod visible;

use field::Field;
use std::collections::BTreeMap;

/// One GPU at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub(crate) identity: Identity,
    /// In NVML's units. What the GPU does not support, or says nonsense of, is absent.
    pub(crate) fields: BTreeMap<Field, u64>,
    /// The newest Xid that only a reset or a repair mends.
    pub(crate) fatal_xid: Option<u64>,
    /// The driver does not reach it any more, or does not answer.
    pub(crate) lost: bool,
}

/// What a GPU is known by.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Among the GPUs that NVML shows to this process.
    pub(crate) index: u32,
    /// `GPU-` and five groups of hexadecimal digits.
    pub(crate) uuid: String,
    pub(crate) pci_bus_id: String,
    /// Of its device file, `/dev/nvidiaMINOR`.
    pub(crate) minor: Option<u32>,
    pub(crate) model: String,
}
