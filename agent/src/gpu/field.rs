//! `Field`: one value of a GPU, with its DCGM name, the units of NVML and DCGM, and its plausible
//! range.

/// The fields that NVML reports, in export order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Field {
    SmClock,
    MemClock,
    GpuTemp,
    PowerUsage,
    TotalEnergyConsumption,
    GpuUtil,
    MemCopyUtil,
    FbFree,
    FbUsed,
    ClocksEventReasons,
    EccSbeVolTotal,
    EccDbeVolTotal,
    XidErrors,
    PcieReplayCounter,
    NvlinkReplayErrors,
    NvlinkRecoveryErrors,
    NvlinkCrcFlitErrors,
    NvlinkCrcDataErrors,
}

/// A Prometheus metric type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
}

const PERCENT_MAX: u64 = 100;
/// Far beyond what silicon survives.
const CELSIUS_MAX: u64 = 200;
/// Several times the clock and the power of any GPU.
const MHZ_MAX: u64 = 20_000;
const MILLIWATTS_MAX: u64 = 20_000_000;

// === impl Field ===

impl Field {
    pub(crate) const ALL: [Self; 18] = [
        Self::SmClock,
        Self::MemClock,
        Self::GpuTemp,
        Self::PowerUsage,
        Self::TotalEnergyConsumption,
        Self::GpuUtil,
        Self::MemCopyUtil,
        Self::FbFree,
        Self::FbUsed,
        Self::ClocksEventReasons,
        Self::EccSbeVolTotal,
        Self::EccDbeVolTotal,
        Self::XidErrors,
        Self::PcieReplayCounter,
        Self::NvlinkReplayErrors,
        Self::NvlinkRecoveryErrors,
        Self::NvlinkCrcFlitErrors,
        Self::NvlinkCrcDataErrors,
    ];

    /// Its DCGM name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SmClock => "DCGM_FI_DEV_SM_CLOCK",
            Self::MemClock => "DCGM_FI_DEV_MEM_CLOCK",
            Self::GpuTemp => "DCGM_FI_DEV_GPU_TEMP",
            Self::PowerUsage => "DCGM_FI_DEV_POWER_USAGE",
            Self::TotalEnergyConsumption => "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
            Self::GpuUtil => "DCGM_FI_DEV_GPU_UTIL",
            Self::MemCopyUtil => "DCGM_FI_DEV_MEM_COPY_UTIL",
            Self::FbFree => "DCGM_FI_DEV_FB_FREE",
            Self::FbUsed => "DCGM_FI_DEV_FB_USED",
            Self::ClocksEventReasons => "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
            Self::EccSbeVolTotal => "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
            Self::EccDbeVolTotal => "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
            Self::XidErrors => "DCGM_FI_DEV_XID_ERRORS",
            Self::PcieReplayCounter => "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
            Self::NvlinkReplayErrors => "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
            Self::NvlinkRecoveryErrors => "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
            Self::NvlinkCrcFlitErrors => "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
            Self::NvlinkCrcDataErrors => "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
        }
    }

    /// A one-line help text, with the exported unit.
    pub(crate) fn help(self) -> &'static str {
        match self {
            Self::SmClock => "SM clock, MHz",
            Self::MemClock => "Memory clock, MHz",
            Self::GpuTemp => "Temperature of the die, degrees Celsius",
            Self::PowerUsage => "Power drawn, W",
            Self::TotalEnergyConsumption => "Energy consumed since the driver was loaded, mJ",
            Self::GpuUtil => "Time in which a kernel ran, percent",
            Self::MemCopyUtil => "Time in which memory was read or written, percent",
            Self::FbFree => "Free memory, MiB",
            Self::FbUsed => "Used memory, MiB",
            Self::ClocksEventReasons => "Bit mask of the reasons for reduced clocks",
            Self::EccSbeVolTotal => "Single-bit errors since the driver was loaded",
            Self::EccDbeVolTotal => "Double-bit errors since the driver was loaded",
            Self::XidErrors => "Last Xid error since the agent started, 0 if there was none",
            Self::PcieReplayCounter => "PCIe packet replays",
            Self::NvlinkReplayErrors => "Replays on all NVLinks",
            Self::NvlinkRecoveryErrors => "Recoveries on all NVLinks",
            Self::NvlinkCrcFlitErrors => "Flow-control CRC errors on all NVLinks",
            Self::NvlinkCrcDataErrors => "Data CRC errors on all NVLinks",
        }
    }

    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::TotalEnergyConsumption
            | Self::EccSbeVolTotal
            | Self::EccDbeVolTotal
            | Self::PcieReplayCounter
            | Self::NvlinkReplayErrors
            | Self::NvlinkRecoveryErrors
            | Self::NvlinkCrcFlitErrors
            | Self::NvlinkCrcDataErrors => Kind::Counter,
            Self::SmClock
            | Self::MemClock
            | Self::GpuTemp
            | Self::PowerUsage
            | Self::GpuUtil
            | Self::MemCopyUtil
            | Self::FbFree
            | Self::FbUsed
            | Self::ClocksEventReasons
            | Self::XidErrors => Kind::Gauge,
        }
    }

    /// Converts NVML's unit to DCGM's: memory from bytes to whole MiB, power from mW to W.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all but three have the same unit in both"
    )]
    pub(crate) fn in_dcgm_units(self, value: u64) -> f64 {
        match self {
            Self::FbFree | Self::FbUsed => (value >> 20) as f64,
            Self::PowerUsage => value as f64 / 1000.0,
            _ => value as f64,
        }
    }

    /// Whether the value is plausible; drivers fill in all ones where they know nothing.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "counters and bit masks may be anything but all ones"
    )]
    pub(crate) fn is_plausible(self, value: u64) -> bool {
        value
            <= match self {
                Self::GpuUtil | Self::MemCopyUtil => PERCENT_MAX,
                Self::GpuTemp => CELSIUS_MAX,
                Self::SmClock | Self::MemClock => MHZ_MAX,
                Self::PowerUsage => MILLIWATTS_MAX,
                _ => u64::MAX - 1,
            }
    }
}

#[cfg(test)]
mod tests;
