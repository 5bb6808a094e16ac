//! What the vendor's library would multiply.

use half::bf16;
use pd_compute::cuda::driver::Gemm;

/// The library's product, as a textbook would do it.
///
/// # Safety
/// The matrices are as large as `gemm` says, and no other thread uses them meanwhile.
pub(super) unsafe fn multiply(gemm: &Gemm) {
    let bf16s = |addr: u64, len: usize| {
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts(addr as *const bf16, len) }
    };
    let (x, weight) = (
        bf16s(gemm.x, gemm.rows * gemm.k),
        bf16s(gemm.weight, gemm.n * gemm.k),
    );
    for (row, x) in x.chunks_exact(gemm.k).enumerate() {
        for (column, w) in weight.chunks_exact(gemm.k).enumerate() {
            let y: f32 = x.iter().zip(w).map(|(x, w)| x.to_f32() * w.to_f32()).sum();
            let at = row * gemm.n + column;
            // SAFETY: the caller's; `at` is within rows × n.
            unsafe {
                if gemm.to_f32 {
                    let out = (gemm.out as *mut f32).add(at);
                    *out = if gemm.adds { *out + y } else { y };
                } else {
                    let out = (gemm.out as *mut bf16).add(at);
                    let before = if gemm.adds { (*out).to_f32() } else { 0.0 };
                    *out = bf16::from_f32(before + y);
                }
            }
        }
    }
}
