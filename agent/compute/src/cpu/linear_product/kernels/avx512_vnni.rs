//! Integer codes by `vpdpwssd`, which adds products to a sum as it multiplies; all else is as in [`avx512`].

use super::avx512::{self, WIDTH};
use super::formats::{self, Format, Instantiate};
use super::{Heights, KTree, LinearKernels, PanelKernel, TileKernel, TreeTiles};
use crate::cpu::simd::avx512::Avx512;

struct Kernels;

pub(super) static KERNELS: LinearKernels = LinearKernels {
    of: formats::kernels::<avx512::Kernels, Kernels>,
    ..avx512::KERNELS
};

/// # Safety
/// As [`TileKernel`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn tile<F: Format, const W: usize, const ROWS: usize>(
    block: *const u8,
    k: KTree,
    x: *const f32,
    tiles: &mut TreeTiles,
) {
    // SAFETY: by this function's contract.
    unsafe { F::tile::<Avx512<true>, W, ROWS>(block, k, x, tiles) }
}

impl Instantiate for Kernels {
    const HEIGHTS: Heights = avx512::Kernels::HEIGHTS;
    const DIRECT_ROWS: usize = avx512::Kernels::DIRECT_ROWS;
    const DIRECT_CODE_ROWS: usize = avx512::Kernels::DIRECT_CODE_ROWS;

    fn tile<F: Format>(rows: usize) -> TileKernel {
        match rows {
            1 => tile::<F, WIDTH, 1>,
            2 => tile::<F, WIDTH, 2>,
            3 => tile::<F, WIDTH, 3>,
            4 => tile::<F, WIDTH, 4>,
            6 => tile::<F, WIDTH, 6>,
            8 => tile::<F, WIDTH, 8>,
            10 => tile::<F, WIDTH, 10>,
            12 => tile::<F, WIDTH, 12>,
            _ => unreachable!("no tile of {rows} rows"),
        }
    }

    fn panel<F: Format>() -> PanelKernel {
        avx512::Kernels::panel::<F>()
    }
}
