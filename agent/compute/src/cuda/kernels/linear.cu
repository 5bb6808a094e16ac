// The linear op: rows lie one after another. See linear.cuh.
#include "linear_hopper.cuh"

using namespace pd;
using namespace pd::linears;

// Grid: rows and columns by what a block makes. Shared memory: as `linear_few` says, of parts no more than there are.
#define LINEAR_FEW_AS(rows, columns, slots, words, type, Out)                                  \
  KERNEL_EARLY(pd_linear_##rows##x##columns##_##type, LinearArgs, 256) {                       \
    linear_few<rows, columns, slots, words, false, Out>(args, AllRows(), blockIdx.x * rows);   \
  }
#define LINEAR_FEW(rows, columns, slots, words)                  \
  LINEAR_FEW_AS(rows, columns, slots, words, bf16, bf16)         \
  LINEAR_FEW_AS(rows, columns, slots, words, f32, float)
LINEAR_FEW(8, 8, 4, 8)
LINEAR_FEW(8, 16, 3, 8)
LINEAR_FEW(16, 16, 3, 8)
LINEAR_FEW(16, 32, 3, 4)
LINEAR_FEW(32, 32, 3, 4)
LINEAR_FEW(32, 64, 2, 4)
KERNEL_EARLY(pd_norm_linear_8x16_bf16, LinearArgs, 256) {
  linear_few<8, 16, 3, 8, true, bf16>(args, AllRows(), blockIdx.x * 8);
}

// Grid: rows / 128, n / 128. Shared memory: STAGES · 2 · TILE · K_STEP elements.
#define LINEAR_TILED(type, Out)                                                \
  KERNEL(pd_linear_tiled_##type, LinearArgs, 256) {                            \
    if (args.shares == 0) {                                                    \
      linear_tiled<Out, false>(args, AllRows(), blockIdx.x * TILE);            \
    } else {                                                                   \
      linear_tiled<Out, true>(args, AllRows(), blockIdx.x * TILE);             \
    }                                                                          \
  }
LINEAR_TILED(bf16, bf16)
LINEAR_TILED(f32, float)

// Grid: rows / HOPPER_ROWS, n / HOPPER_COLUMNS. Shared memory: HOPPER_STAGES · (HOPPER_ROWS + HOPPER_COLUMNS) · HOPPER_K_STEP
// elements, and SWIZZLE_ALIGN bytes.
#define LINEAR_HOPPER(type, Out)                                                                       \
  KERNEL(pd_linear_hopper_##type, LinearArgs, 256) {                                                   \
    linear_hopper<Out>(args, AllRows(), blockIdx.x * HOPPER_ROWS, blockIdx.y * HOPPER_COLUMNS);        \
  }
LINEAR_HOPPER(bf16, bf16)
LINEAR_HOPPER(f32, float)

// Grid: n / 16, rows / ROWS_F32.
KERNEL(pd_linear_full_f32, LinearArgs, 256) { linear_f32(args, AllRows(), blockIdx.y * ROWS_F32); }

// Grid: rows · n / 8, by threads.
KERNEL(pd_swiglu_bf16, SwiGluArgs, 256) {
  uint64_t at = (uint64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 8;
  if (at >= uint64_t(args.rows) * args.n) return;
  const bf16* y = static_cast<const bf16*>(args.y) + 2 * at;
  Pack8<bf16> low = load8(y), high = load8(y + 8), out;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const Pack8<bf16>& pair = i < 4 ? low : high;
    int j = 2 * i % 8;
    out.set2(i, silu(pair.get(j)) * pair.get(j + 1), silu(pair.get(j + 2)) * pair.get(j + 3));
  }
  store8(static_cast<bf16*>(args.out) + at, out);
}
