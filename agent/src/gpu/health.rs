//! Whether a GPU is degraded. It is when the hardware slows it down, which costs it half of its
//! clock or more, when memory has uncorrectable errors, after an Xid that needs a reset or a
//! repair, and when it is gone. A power cap, and heat that the driver handles itself, are normal
//! for a busy GPU.

use super::Gpu;
use super::field::Field;

/// Why a GPU is degraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    HwSlowdown,
    HwThermal,
    HwPowerBrake,
    DoubleBitEcc,
    FatalXid,
    Lost,
}

/// Bits of NVML's clocks event reasons (`nvmlClocksEventReasons` in `nvml.h`).
const HW_SLOWDOWN: u64 = 0x08;
const HW_THERMAL_SLOWDOWN: u64 = 0x40;
const HW_POWER_BRAKE_SLOWDOWN: u64 = 0x80;

/// Xids for which NVIDIA's catalogue demands a reset of the GPU or a restart of its host. Others
/// belong to the running program (13, 31, 43, 45), or report an error that was corrected or
/// contained (63, 94). The catalogue's 155 is missing here, because it also reports links that are
/// put to sleep.
const FATAL_XIDS: [u64; 16] = [
    46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 156, 158,
];

pub(crate) fn is_fatal(xid: u64) -> bool {
    FATAL_XIDS.contains(&xid)
}

// === impl Fault ===

impl Fault {
    pub(crate) const ALL: [Self; 6] = [
        Self::HwSlowdown,
        Self::HwThermal,
        Self::HwPowerBrake,
        Self::DoubleBitEcc,
        Self::FatalXid,
        Self::Lost,
    ];

    /// Its word in labels and logs.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::HwSlowdown => "hw_slowdown",
            Self::HwThermal => "hw_thermal",
            Self::HwPowerBrake => "hw_power_brake",
            Self::DoubleBitEcc => "double_bit_ecc",
            Self::FatalXid => "fatal_xid",
            Self::Lost => "lost",
        }
    }

    /// Whether the GPU has the fault; `None` if the GPU does not report on it.
    pub(crate) fn of(self, gpu: &Gpu) -> Option<bool> {
        let field = |field| gpu.fields.get(&field).copied();
        let slowed = |bit| Some(field(Field::ClocksEventReasons)? & bit != 0);
        match self {
            Self::HwSlowdown => slowed(HW_SLOWDOWN),
            Self::HwThermal => slowed(HW_THERMAL_SLOWDOWN),
            Self::HwPowerBrake => slowed(HW_POWER_BRAKE_SLOWDOWN),
            Self::DoubleBitEcc => Some(field(Field::EccDbeVolTotal)? > 0),
            Self::FatalXid => field(Field::XidErrors).map(|_| gpu.fatal_xid.is_some()),
            Self::Lost => Some(gpu.lost),
        }
    }
}

/// All faults of a GPU.
pub(crate) fn faults(gpu: &Gpu) -> Vec<Fault> {
    let has = |fault: &Fault| fault.of(gpu) == Some(true);
    Fault::ALL.into_iter().filter(has).collect()
}

#[cfg(test)]
mod tests;
