//! Loops that stay in registers.

use crate::best;
use pd_compute::cpu::Isa;
use std::arch::asm;
use std::arch::x86_64::{
    __m256, __m512, __m512bh, __m512i, _mm256_fmadd_ps, _mm256_set1_ps, _mm512_dpbf16_ps,
    _mm512_dpwssd_epi32, _mm512_fmadd_ps, _mm512_set1_epi32, _mm512_set1_ps,
};
use std::hint::black_box;

/// # Safety
/// The processor has AVX-512 F.
#[target_feature(enable = "avx512f")]
unsafe fn fma_avx512(steps: usize) {
    let x = _mm512_set1_ps(black_box(1.0e-9));
    let mut sums: [__m512; 24] = [x; 24];
    for _ in 0..steps {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(x, x, *sum);
        }
    }
    black_box(sums);
}

/// # Safety
/// The processor has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
unsafe fn fma_avx2(steps: usize) {
    let x = _mm256_set1_ps(black_box(1.0e-9));
    let mut sums: [__m256; 12] = [x; 12];
    for _ in 0..steps {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(x, x, *sum);
        }
    }
    black_box(sums);
}

/// # Safety
/// The processor has AVX512-BF16.
#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn dot_bf16(steps: usize) {
    // SAFETY: as many bits.
    let x: __m512bh = unsafe { std::mem::transmute(_mm512_set1_epi32(black_box(0x2c2c_2c2c))) };
    let mut sums: [__m512; 24] = [_mm512_set1_ps(0.0); 24];
    for _ in 0..steps {
        for sum in &mut sums {
            *sum = _mm512_dpbf16_ps(*sum, x, x);
        }
    }
    black_box(sums);
}

/// # Safety
/// The processor has AVX512-VNNI.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn dot_i16(steps: usize) {
    let x = _mm512_set1_epi32(black_box(0x0001_0001));
    let mut sums: [__m512i; 24] = [x; 24];
    for _ in 0..steps {
        for sum in &mut sums {
            *sum = _mm512_dpwssd_epi32(*sum, x, x);
        }
    }
    black_box(sums);
}

/// # Safety
/// This process may use AMX.
unsafe fn tiles_bf16(steps: usize) {
    #[repr(align(64))]
    struct Shapes([u8; 64]);
    // Palette 1: six tiles of sixteen rows of 64 bytes.
    let mut shapes = Shapes([0; 64]);
    shapes.0[0] = 1;
    for tile in 0..6 {
        shapes.0[16 + 2 * tile] = 64;
        shapes.0[48 + tile] = 16;
    }
    // SAFETY: valid shapes; compiled code has nothing in tiles.
    unsafe {
        asm!(
            "ldtilecfg [{shapes}]",
            "2:",
            "tdpbf16ps tmm0, tmm4, tmm5",
            "tdpbf16ps tmm1, tmm4, tmm5",
            "tdpbf16ps tmm2, tmm4, tmm5",
            "tdpbf16ps tmm3, tmm4, tmm5",
            "dec {steps}",
            "jnz 2b",
            "tilerelease",
            shapes = in(reg) shapes.0.as_ptr(),
            steps = inout(reg) steps.max(1) => _,
            options(nostack, readonly),
        );
    }
}

/// A loop of products of pairs, and what it needs.
pub(crate) struct Dot {
    pub(crate) name: &'static str,
    pub(crate) isa: Isa,
    run: unsafe fn(usize),
    flops_per_step: usize,
}

pub(crate) const DOTS: [Dot; 3] = [
    Dot {
        name: "bf16 dot products on tiles",
        isa: Isa::Amx,
        run: tiles_bf16,
        flops_per_step: 4 * 16 * 16 * 32 * 2,
    },
    Dot {
        name: "bf16 dot products",
        isa: Isa::Avx512Bf16,
        run: dot_bf16,
        flops_per_step: 24 * 32 * 2,
    },
    Dot {
        name: "i16 dot products",
        isa: Isa::Avx512Vnni,
        run: dot_i16,
        flops_per_step: 24 * 32 * 2,
    },
];

const STEPS: usize = 1_000_000;

pub(crate) fn peak_of_dots(dot: &Dot, threads: usize) -> f64 {
    // SAFETY: the instruction set was found.
    let seconds = best(threads, 10, |_| unsafe { (dot.run)(STEPS) });
    (dot.flops_per_step * STEPS * threads) as f64 / seconds / 1e9
}

pub(crate) fn peak_gflops(isa: Isa, threads: usize) -> f64 {
    let flops_per_step = match isa {
        Isa::Avx512 | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Amx => 24 * 16 * 2,
        Isa::Avx2 => 12 * 8 * 2,
        Isa::Scalar => return f64::NAN,
    };
    let seconds = best(threads, 10, |_| {
        if isa == Isa::Avx2 {
            // SAFETY: the instruction set was found.
            unsafe { fma_avx2(STEPS) };
        } else {
            // SAFETY: the instruction set was found.
            unsafe { fma_avx512(STEPS) };
        }
    });
    (flops_per_step * STEPS * threads) as f64 / seconds / 1e9
}
