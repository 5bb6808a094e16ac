// y = x·Wᵀ with its epilogue, for x [rows][k] and W [n][k] row-major.
//
// Every output adds k up in one order, for any number of rows: k is cut into SEGMENTS, each is accumulated by tensor-core
// products of 16 in ascending k, and the segments are added in order. So the kernel for few rows, which gives each
// warp a segment, and the tiled one, which walks them, yield the same bits.
//
// Within 32 values of k, lane 4g+t loads the 8 from 8t on of row g: 16 bytes, and the operands of two products. That
// takes k in another order than the instruction's, the same one for x and W, which a sum does not mind.
#include "args.cuh"

using namespace pd;

namespace {

constexpr uint32_t SEGMENTS = 8;
constexpr uint32_t K_STEP = 32;
// Rows of W that one tensor-core product takes, and rows of x.
constexpr uint32_t N_TILE = 16;
constexpr uint32_t M_TILE = 8;

HD uint32_t segment_len(uint32_t k) { return K_STEP * ceil_div(k, K_STEP * SEGMENTS); }

// acc += W·xᵀ over the 32 values of k that the lanes hold: `w0` of row g, `w1` of row g+8, `x` of x's row g.
DEVICE void multiply_step(float (&acc)[4], const Words4& w0, const Words4& w1, const Words4& x) {
  uint32_t a[4] = {w0.w[0], w1.w[0], w0.w[1], w1.w[1]};
  uint32_t b[2] = {x.w[0], x.w[1]};
  mma_16x8x16(acc, a, b);
  uint32_t c[4] = {w0.w[2], w1.w[2], w0.w[3], w1.w[3]};
  uint32_t d[2] = {x.w[2], x.w[3]};
  mma_16x8x16(acc, c, d);
}

template <typename Out>
DEVICE Out* out_at(const LinearArgs& args, uint32_t row, uint32_t column) {
  return static_cast<Out*>(args.out) + uint64_t(row) * args.n + column;
}

template <typename Out>
DEVICE void finish(const LinearArgs& args, uint32_t row, uint32_t column, float y) {
  Out* out = out_at<Out>(args, row, column);
  if (args.epilogue == ADD_RESIDUAL) y += to_float(*out);
  *out = from_float<Out>(y);
}

template <typename Out>
DEVICE void finish_gated(const LinearArgs& args, uint32_t row, uint32_t column, float gate, float up) {
  Out* out = static_cast<Out*>(args.out) + uint64_t(row) * (args.n / 2) + column / 2;
  *out = from_float<Out>(silu(gate) * up);
}

// --- Few rows: a block makes 8·TILES rows of 16·COLUMN_TILES columns, a warp adds one segment of k. ---

// Steps of k that are on their way while a warp multiplies, of W in registers, of x in shared memory.
template <int COLUMN_TILES>
constexpr int STEPS_AHEAD = COLUMN_TILES == 1 ? 4 : COLUMN_TILES == 2 ? 3 : 2;
// Floats from a row of sums to the next, so that the lanes of a product store to different banks.
constexpr uint32_t SUMS_STRIDE = N_TILE + 4;
// Matrices of up to so many elements, 16 MB, fit the L2 cache beside other things.
constexpr uint64_t CACHED_LEN_MAX = 8 << 20;

// Loads what a block needs of W before it waits for the kernels that make x.
template <int TILES, int COLUMN_TILES, typename Out>
DEVICE void linear_few(const LinearArgs& args) {
  constexpr int STEPS = STEPS_AHEAD<COLUMN_TILES>;
  constexpr uint32_t ROWS = M_TILE * TILES, COLUMNS = N_TILE * COLUMN_TILES;
  SHARED(Words4, shared);  // x: [SEGMENTS][STEPS][TILES][WARP], then sums: [SEGMENTS][ROWS][SUMS_STRIDE] floats
  uint32_t lane = lane_id(), g = lane / 4, t = lane % 4;
  uint32_t m0 = blockIdx.x * ROWS, n0 = blockIdx.y * COLUMNS;
  uint32_t begin = warp_id() * segment_len(args.k);
  uint32_t end = min_of(begin + segment_len(args.k), args.k);

  auto row_of_w = [&](uint32_t i) {
    return static_cast<const bf16*>(args.weight) + uint64_t(min_of(n0 + i, args.n - 1)) * args.k;
  };
  const bf16* w_rows[2 * COLUMN_TILES];
#pragma unroll
  for (int i = 0; i < 2 * COLUMN_TILES; ++i) w_rows[i] = row_of_w(8 * i + g) + 8 * t;
  // Of the step that begins at `k`; the last one may end early.
  Words4 w[STEPS][2 * COLUMN_TILES];
  auto load_w = [&](int slot, uint32_t k) {
#pragma unroll
    for (int i = 0; i < 2 * COLUMN_TILES; ++i) {
      w[slot][i] = Words4{};
      if (k + 8 * t < end) w[slot][i] = load_streaming(w_rows[i] + k);
    }
  };
  // A lane reads the words that it copied, so nothing but its own copies is waited for.
  Words4* xs = shared + warp_id() * STEPS * TILES * WARP + lane;
  const bf16* x = static_cast<const bf16*>(args.x) + uint64_t(m0 + g) * args.k + 8 * t;
  auto copy_x = [&](int slot, uint32_t k) {
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
      bool wanted = k + 8 * t < end && m0 + M_TILE * i + g < args.rows;
      const bf16* from = wanted ? x + uint64_t(M_TILE) * i * args.k + k : static_cast<const bf16*>(args.x);
      copy_async_cached(xs + (slot * TILES + i) * WARP, from, wanted);
    }
  };

#pragma unroll
  for (int s = 0; s < STEPS; ++s) load_w(s, begin + K_STEP * s);
  if (segment_len(args.k) > K_STEP * STEPS && uint64_t(args.n) * args.k <= CACHED_LEN_MAX) {
    uint32_t row = warp_id() + lane * SEGMENTS;
    if (row < COLUMNS) prefetch_weights(row_of_w(row), 2 * args.k);
  }
  await_kernels_before();
#pragma unroll
  for (int s = 0; s < STEPS; ++s) {
    if (begin + K_STEP * s < end) copy_x(s, begin + K_STEP * s);
    commit_copies();
  }

  // What the first sum of each thread is added to.
  uint32_t rows = min_of(args.rows - m0, ROWS);
  uint32_t own_row = threadIdx.x / N_TILE, own_column = n0 + threadIdx.x % N_TILE;
  float own_residual = 0.0f;
  if (args.epilogue == ADD_RESIDUAL && own_row < rows && own_column < args.n) {
    own_residual = to_float(*out_at<Out>(args, m0 + own_row, own_column));
  }

  float acc[COLUMN_TILES][TILES][4] = {};
  for (uint32_t k0 = begin; k0 < end; k0 += K_STEP * STEPS) {
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      if (k0 + K_STEP * s >= end) break;
      wait_copies<STEPS - 1>();
#pragma unroll
      for (int i = 0; i < TILES; ++i) {
        Words4 x_words = xs[(s * TILES + i) * WARP];
#pragma unroll
        for (int j = 0; j < COLUMN_TILES; ++j) multiply_step(acc[j][i], w[s][2 * j], w[s][2 * j + 1], x_words);
      }
      uint32_t next = k0 + K_STEP * (STEPS + s);
      if (next < end) {
        load_w(s, next);
        copy_x(s, next);
      }
      commit_copies();
    }
  }

  // No copy is on its way any more.
  auto sums = reinterpret_cast<float*>(shared);
  auto total = [&](uint32_t row, uint32_t column) {
    float sum = 0.0f;
    for (uint32_t s = 0; s < SEGMENTS; ++s) sum += sums[(s * ROWS + row) * SUMS_STRIDE + column];
    return sum;
  };
#pragma unroll
  for (int j = 0; j < COLUMN_TILES; ++j) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        uint32_t row = M_TILE * i + 2 * t + e % 2, column = g + 8 * (e / 2);
        sums[(warp_id() * ROWS + row) * SUMS_STRIDE + column] = acc[j][i][e];
      }
    }
    __syncthreads();
    uint32_t first = n0 + N_TILE * j;
    if (args.epilogue == SWIGLU) {
      for (uint32_t at = threadIdx.x; at < rows * N_TILE / 2; at += blockDim.x) {
        uint32_t row = at / (N_TILE / 2), column = at % (N_TILE / 2) * 2;
        if (first + column >= args.n) continue;
        finish_gated<Out>(args, m0 + row, first + column, total(row, column), total(row, column + 1));
      }
    } else {
      for (uint32_t at = threadIdx.x; at < rows * N_TILE; at += blockDim.x) {
        uint32_t row = at / N_TILE, column = at % N_TILE;
        if (first + column >= args.n) continue;
        if (j == 0 && at == threadIdx.x) {
          *out_at<Out>(args, m0 + row, first + column) = from_float<Out>(total(row, column) + own_residual);
        } else {
          finish<Out>(args, m0 + row, first + column, total(row, column));
        }
      }
    }
  }
}

// --- Many rows: tiles of 128 × 128, k in steps of 32 through a ring of copies. ---

constexpr uint32_t TILE = 128;
constexpr int STAGES = 4;
// A warp makes 32 columns of 64 rows.
constexpr int WARP_N = 2, WARP_M = 8;

template <typename Out>
DEVICE void linear_tiled(const LinearArgs& args) {
  SHARED(bf16, shared);  // [STAGES][W: TILE, x: TILE][K_STEP]
  uint32_t lane = lane_id(), g = lane / 4, t = lane % 4;
  uint32_t m0 = blockIdx.x * TILE, n0 = blockIdx.y * TILE;
  uint32_t steps = ceil_div(args.k, K_STEP), segment = segment_len(args.k) / K_STEP;
  auto stage = [&](uint32_t step) { return shared + step % STAGES * 2 * TILE * K_STEP; };
  auto fetch = [&](uint32_t step) {
    bf16* to = stage(step);
    for (uint32_t i = threadIdx.x; i < 2 * TILE * 4; i += blockDim.x) {
      uint32_t row = i / 4 % TILE, k = step * K_STEP + i % 4 * 8;
      bool is_w = i < TILE * 4;
      bool wanted = k < args.k && (is_w ? n0 + row < args.n : m0 + row < args.rows);
      const void* matrix = is_w ? args.weight : args.x;
      uint64_t at = wanted ? uint64_t((is_w ? n0 : m0) + row) * args.k + k : 0;
      copy_async(to + i * 8, static_cast<const bf16*>(matrix) + at, wanted);
    }
  };
  for (int step = 0; step < STAGES - 1; ++step) {
    if (uint32_t(step) < steps) fetch(step);
    commit_copies();
  }
  uint32_t warp_n = warp_id() % 4 * 32, warp_m = warp_id() / 4 * 64;
  float acc[WARP_N][WARP_M][4] = {}, total[WARP_N][WARP_M][4] = {};
  for (uint32_t step = 0; step < steps; ++step) {
    wait_copies<STAGES - 2>();
    __syncthreads();
    // The stage that everyone finished with a step ago.
    if (step + STAGES - 1 < steps) fetch(step + STAGES - 1);
    commit_copies();
    auto words = reinterpret_cast<const Words4*>(stage(step));
    Words4 w[WARP_N][2];
#pragma unroll
    for (int i = 0; i < WARP_N; ++i) {
      w[i][0] = words[(warp_n + 16 * i + g) * 4 + t];
      w[i][1] = words[(warp_n + 16 * i + g + 8) * 4 + t];
    }
#pragma unroll
    for (int j = 0; j < WARP_M; ++j) {
      Words4 x = words[(TILE + warp_m + 8 * j + g) * 4 + t];
#pragma unroll
      for (int i = 0; i < WARP_N; ++i) multiply_step(acc[i][j], w[i][0], w[i][1], x);
    }
    if ((step + 1) % segment == 0 || step + 1 == steps) {
#pragma unroll
      for (int i = 0; i < WARP_N * WARP_M * 4; ++i) {
        float& part = acc[i / (WARP_M * 4)][i / 4 % WARP_M][i % 4];
        total[i / (WARP_M * 4)][i / 4 % WARP_M][i % 4] += part;
        part = 0.0f;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < WARP_N; ++i) {
#pragma unroll
    for (int j = 0; j < WARP_M; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        uint32_t row = m0 + warp_m + 8 * j + 2 * t + e % 2, column = n0 + warp_n + 16 * i + g + 8 * (e / 2);
        float y = total[i][j][e];
        // The neighbour in n is the lane of the next row of W.
        float next = shuffle_xor(y, 4);
        if (row >= args.rows || column >= args.n) continue;
        if (args.epilogue != SWIGLU) {
          finish<Out>(args, row, column, y);
        } else if (column % 2 == 0) {
          finish_gated<Out>(args, row, column, y, next);
        }
      }
    }
  }
}

// --- f32, for the faithful path: a warp makes two neighbouring columns of ROWS_F32 rows. ---

constexpr int ROWS_F32 = 4;

DEVICE void linear_f32(const LinearArgs& args) {
  uint32_t lane = lane_id();
  uint32_t n0 = (blockIdx.x * (blockDim.x / WARP) + warp_id()) * 2, m0 = blockIdx.y * ROWS_F32;
  if (n0 >= args.n) return;
  const float* w0 = static_cast<const float*>(args.weight) + uint64_t(n0) * args.k;
  const float* w1 = n0 + 1 < args.n ? w0 + args.k : w0;
  const float* x = static_cast<const float*>(args.x) + uint64_t(m0) * args.k;
  float sums[ROWS_F32][2] = {};
  for (uint32_t k = lane; k < args.k; k += WARP) {
    float a = w0[k], b = w1[k];
#pragma unroll
    for (int r = 0; r < ROWS_F32; ++r) {
      float value = m0 + r < args.rows ? x[uint64_t(r) * args.k + k] : 0.0f;
      sums[r][0] += value * a;
      sums[r][1] += value * b;
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS_F32; ++r) {
    float first = warp_sum(sums[r][0]), second = warp_sum(sums[r][1]);
    if (lane != 0 || m0 + r >= args.rows) continue;
    if (args.epilogue == SWIGLU) {
      finish_gated<float>(args, m0 + r, n0, first, second);
    } else {
      finish<float>(args, m0 + r, n0, first);
      if (n0 + 1 < args.n) finish<float>(args, m0 + r, n0 + 1, second);
    }
  }
}

}  // namespace

// Grid: rows and columns by what a block makes. Shared memory: the larger of x and sums.
#define LINEAR_FEW(tiles, column_tiles, rows, columns)                     \
  KERNEL_EARLY(pd_linear_##rows##x##columns##_bf16, LinearArgs, 256) {     \
    linear_few<tiles, column_tiles, bf16>(args);                           \
  }                                                                        \
  KERNEL_EARLY(pd_linear_##rows##x##columns##_f32, LinearArgs, 256) {      \
    linear_few<tiles, column_tiles, float>(args);                          \
  }
LINEAR_FEW(1, 1, 8, 16)
LINEAR_FEW(2, 1, 16, 16)
LINEAR_FEW(2, 2, 16, 32)
LINEAR_FEW(4, 2, 32, 32)
LINEAR_FEW(4, 4, 32, 64)
LINEAR_FEW(8, 4, 64, 64)

// Grid: rows / 128, n / 128. Shared memory: STAGES · 2 · TILE · K_STEP elements.
KERNEL(pd_linear_tiled_bf16, LinearArgs, 256) { linear_tiled<bf16>(args); }
KERNEL(pd_linear_tiled_f32, LinearArgs, 256) { linear_tiled<float>(args); }

// Grid: n / 16, rows / ROWS_F32.
KERNEL(pd_linear_full_f32, LinearArgs, 256) { linear_f32(args); }

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
