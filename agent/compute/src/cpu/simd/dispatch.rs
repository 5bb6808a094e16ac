//! Kernels over sixteen lanes, and starting one with the instruction set it is compiled for.

use super::avx2::Avx2;
use super::avx512::Avx512;
use super::scalar::Scalar;
use super::sixteen::{Pair, Sixteen};
use crate::cpu::isa::Isa;

/// A computation over any [`Sixteen`]. Reductions run per lane and end in one fixed tree, so all
/// instruction sets give the same bits.
pub(crate) trait Kernel {
    type Output;

    /// # Safety
    /// The processor has the instruction set of `V`; further needs are the kernel's own.
    unsafe fn run<V: Sixteen>(self) -> Self::Output;
}

// === impl Isa ===

impl Isa {
    /// Runs a kernel compiled for this instruction set.
    ///
    /// # Safety
    /// What the kernel itself needs. The instruction set is there: an `Isa` in use was required or
    /// detected.
    pub(crate) unsafe fn dispatch<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            // SAFETY: no instruction set needed; the kernel's needs by the caller.
            Self::Scalar => unsafe { kernel.run::<Pair<Scalar>>() },
            // SAFETY: this Isa is available; the kernel's needs by the caller.
            Self::Avx2 => unsafe { run_avx2(kernel) },
            // SAFETY: this Isa is available; the kernel's needs by the caller.
            Self::Avx512 | Self::Avx512Vnni | Self::Avx512Bf16 | Self::Amx => unsafe {
                run_avx512(kernel)
            },
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the instruction set is enabled here.
    unsafe { kernel.run::<Pair<Avx2>>() }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the instruction set is enabled here.
    unsafe { kernel.run::<Avx512>() }
}
