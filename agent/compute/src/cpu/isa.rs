//! Which instruction set the kernels use: found once, or named for tests and comparisons.

use crate::error::ComputeError;
use std::arch::x86_64::__cpuid_count;
use std::sync::LazyLock;

/// Whether the processor has AMX's tiles and products of bfloat16, and the kernel lets this process use them: since their
/// state is large, it asks to be asked first (Linux's Documentation/arch/x86/xstate.rst).
static AMX: LazyLock<bool> = LazyLock::new(|| {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILE_DATA: libc::c_long = 18;
    /// Bits of EDX in leaf 7: AMX-BF16 and AMX-TILE (Intel's SDM, volume 2, CPUID).
    const FEATURES: u32 = 1 << 22 | 1 << 24;
    if __cpuid_count(7, 0).edx & FEATURES != FEATURES {
        return false;
    }
    // SAFETY: a call that changes nothing but what this process may use.
    let refused = unsafe {
        libc::syscall(
            libc::SYS_arch_prctl,
            ARCH_REQ_XCOMP_PERM,
            XFEATURE_XTILE_DATA,
        )
    };
    refused == 0
});

/// Kernel families, weakest first. Each includes what the weaker ones need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    Scalar,
    /// AVX2, FMA, F16C.
    Avx2,
    /// AVX-512 F, BW, DQ, VL.
    Avx512,
    /// Also VNNI, for integer codes.
    Avx512Vnni,
    /// Also AVX512-BF16, for a compute dtype of bfloat16.
    Avx512Bf16,
    /// Also AMX's tiles of bfloat16, for linears and attention.
    Amx,
}

// === impl Isa ===

impl Isa {
    pub const ALL: [Self; 6] = [
        Self::Scalar,
        Self::Avx2,
        Self::Avx512,
        Self::Avx512Vnni,
        Self::Avx512Bf16,
        Self::Amx,
    ];

    /// The strongest that this processor has.
    pub fn detect() -> Self {
        Self::ALL
            .into_iter()
            .rev()
            .find(|isa| isa.is_available())
            .unwrap_or(Self::Scalar)
    }

    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            Self::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            Self::Avx512 => {
                Self::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            Self::Avx512Vnni => {
                Self::Avx512.is_available() && is_x86_feature_detected!("avx512vnni")
            }
            Self::Avx512Bf16 => {
                Self::Avx512Vnni.is_available() && is_x86_feature_detected!("avx512bf16")
            }
            Self::Amx => Self::Avx512Bf16.is_available() && *AMX,
        }
    }

    /// `Ok(self)` when this processor has it.
    ///
    /// # Errors
    /// When it does not.
    pub fn require(self) -> Result<Self, ComputeError> {
        if self.is_available() {
            Ok(self)
        } else {
            Err(ComputeError::IsaMissing { isa: self.name() })
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Vnni => "avx512vnni",
            Self::Avx512Bf16 => "avx512bf16",
            Self::Amx => "amx",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|isa| isa.name() == name)
    }
}
