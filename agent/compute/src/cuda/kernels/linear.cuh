// y = x·Wᵀ with its epilogue, for x [rows][k] and W [n][k] row-major: what the kernels of linears, of experts and of
// heads share. They differ in where rows lie.
//
// Every output adds k up in one order, for any number of rows: k is cut into SEGMENTS, each is accumulated by tensor-core
// products of 16 in ascending k, and the segments are added in order. So the kernel for few rows, which gives each
// warp a segment, and the tiled one, which walks them, yield the same bits. Where `shares` is not 0 there are so many
// segments, which are added up as a binary tree: a weight with half of the k has half of the segments, and its result is
// one of the two that all of them add at last.
//
// Within 32 values of k, lane 4g+t loads the 8 from 8t on of row g: 16 bytes, and the operands of two products. That
// takes k in another order than the instruction's, the same one for x and W, which a sum does not mind.
#pragma once
#include "args.cuh"

namespace pd {
namespace linears {

constexpr uint32_t SEGMENTS = 8;
constexpr uint32_t K_STEP = 32;
// Rows of W that one tensor-core product takes, and rows of x.
constexpr uint32_t N_TILE = 16;
constexpr uint32_t M_TILE = 8;

// Where rows lie: one after another.
struct AllRows {
  // x from row `first` on.
  template <typename T>
  struct From {
    const T* first;
    DEVICE const T* at(const LinearArgs& args, uint32_t row) const { return first + uint64_t(row) * args.k; }
  };
  template <typename T>
  DEVICE From<T> from(const LinearArgs& args, uint32_t first) const {
    return From<T>{static_cast<const T*>(args.x) + uint64_t(first) * args.k};
  }
  // Elements before a row of the result that has `width`.
  DEVICE uint64_t out(uint32_t row, uint32_t width) const { return uint64_t(row) * width; }
};

HD uint32_t segment_len(const LinearArgs& args) {
  return K_STEP * ceil_div(args.k, K_STEP * (args.shares ? args.shares : SEGMENTS));
}

// The sum of all segments, of which `at` has the sums.
template <typename At>
DEVICE float sum_segments(const LinearArgs& args, At at) {
  if (args.shares == 0) {
    float sum = 0.0f;
    for (uint32_t s = 0; s < SEGMENTS; ++s) sum += at(s);
    return sum;
  }
  if (args.shares == 1) return at(0);
  auto pair = [&](uint32_t s) { return at(s) + at(s + 1); };
  if (args.shares == 2) return pair(0);
  float first = pair(0) + pair(2);
  return args.shares == 4 ? first : first + (pair(4) + pair(6));
}

// acc += W·xᵀ over the 32 values of k that the lanes hold: `w0` of row g, `w1` of row g+8, `x` of x's row g.
DEVICE void multiply_step(float (&acc)[4], const Words4& w0, const Words4& w1, const Words4& x) {
  uint32_t a[4] = {w0.w[0], w1.w[0], w0.w[1], w1.w[1]};
  uint32_t b[2] = {x.w[0], x.w[1]};
  mma_16x8x16(acc, a, b);
  uint32_t c[4] = {w0.w[2], w1.w[2], w0.w[3], w1.w[3]};
  uint32_t d[2] = {x.w[2], x.w[3]};
  mma_16x8x16(acc, c, d);
}

template <typename Out, typename Rows>
DEVICE Out* out_at(const LinearArgs& args, const Rows& rows, uint32_t row, uint32_t column) {
  return static_cast<Out*>(args.out) + rows.out(row, args.n) + column;
}

DEVICE bool joins_pairs(const LinearArgs& args) { return args.epilogue >= SWIGLU; }

// What comes before an output is stored or added.
DEVICE float shaped(const LinearArgs& args, uint32_t column, float y) {
  if (args.bias) y += args.bias[column];
  return args.epilogue == SOFT_CAP ? soft_cap(y, args.limit) : y;
}

template <typename Out, typename Rows>
DEVICE void finish(const LinearArgs& args, const Rows& rows, uint32_t row, uint32_t column, float y) {
  Out* out = out_at<Out>(args, rows, row, column);
  y = shaped(args, column, y);
  if (args.epilogue == ADD_RESIDUAL) y += to_float(*out);
  *out = from_float<Out>(y);
}

template <typename Out, typename Rows>
DEVICE void finish_gated(const LinearArgs& args, const Rows& rows, uint32_t row, uint32_t column, float gate,
                         float up) {
  Out* out = static_cast<Out*>(args.out) + rows.out(row, args.n / 2) + column / 2;
  if (args.bias) {
    gate += args.bias[column];
    up += args.bias[column + 1];
  }
  if (args.epilogue == SWIGLU) {
    *out = from_float<Out>(silu(gate) * up);
  } else if (args.epilogue == GELU_TANH_GLU) {
    *out = from_float<Out>(gelu_tanh(gate) * up);
  } else {
    // Not by `fminf`, which would make a number of what is none.
    gate = gate > args.limit ? args.limit : gate;
    up = up > args.limit ? args.limit : up < -args.limit ? -args.limit : up;
    *out = from_float<Out>(gate * sigmoid(args.alpha * gate) * (up + 1.0f));
  }
}

// --- Few rows: a block makes a few rows of a few columns, a warp adds one segment of k. ---

// Floats from a row of sums to the next, so that the lanes of a product store to different banks.
constexpr uint32_t SUMS_STRIDE = N_TILE + 4;
// Matrices of up to so many elements, 16 MB, fit the L2 cache beside other things.
constexpr uint64_t CACHED_LEN_MAX = 8 << 20;

// Copies what a block needs of W before it waits for the kernels that make x. SLOTS parts of k are on their way while a
// warp multiplies, by way of shared memory: a load to a register is waited for with all those after it that share its
// counter, of which a warp has six. A part has WORDS words of 16 bytes of each row; eight are a line of the cache, and
// a multiprocessor has requests for so many lines on their way, whole or not.
//
// With NORMS, x is normed as pd_rms_norm does it, but each row's scale, which its squares yield on the way, multiplies y.
//
// It makes the rows from `m0` on of those that `args` counts, as `places` has them.
template <uint32_t ROWS, uint32_t COLUMNS, int SLOTS, uint32_t WORDS, bool NORMS, typename Out, typename Rows>
DEVICE void linear_few(const LinearArgs& args, const Rows& places, uint32_t m0) {
  constexpr uint32_t SLOT_K = 8 * WORDS, ROWS_AT_ONCE = WARP / WORDS;
  constexpr int TILES = ROWS / M_TILE, COLUMN_TILES = COLUMNS < N_TILE ? 1 : COLUMNS / N_TILE;
  // Columns of a product that are wanted.
  constexpr uint32_t WIDTH = COLUMNS < N_TILE ? COLUMNS : N_TILE;
  static_assert(!NORMS || (TILES == 1 && COLUMN_TILES == 1), "a lane sums the squares of one row");
  // With NORMS the norm's weight, [k] floats. Then the parts, [SLOTS][SEGMENTS][COLUMNS of W, ROWS of x][WORDS], and in
  // their place sums, [SEGMENTS][ROWS][SUMS_STRIDE] floats, and squares, [SEGMENTS][M_TILE] floats.
  SHARED(Words4, shared);
  float* gains = reinterpret_cast<float*>(shared);
  Words4* ring = shared + (NORMS ? args.k / 4 : 0);
  uint32_t lane = lane_id(), g = lane / 4, t = lane % 4;
  uint32_t n0 = blockIdx.y * COLUMNS;
  // None of a warp that has no segment.
  uint32_t begin = warp_id() * segment_len(args);
  uint32_t end = min_of(begin + segment_len(args), args.k);

  // Odd rows of whole lines are turned by half a line: the lanes of a quarter of a warp read two rows.
  auto place = [&](int slot, uint32_t row, uint32_t word) {
    uint32_t turn = WORDS == 8 ? row % 2 * 4 : 0;
    return ring + ((slot * SEGMENTS + warp_id()) * (COLUMNS + ROWS) + row) * WORDS + (word ^ turn);
  };
  auto row_of_w = [&](uint32_t i) {
    return static_cast<const bf16*>(args.weight) + uint64_t(min_of(n0 + i, args.n - 1)) * args.k;
  };
  // Copying, a lane takes one word of every so many rows.
  uint32_t first = lane / WORDS, word = lane % WORDS;
  const bf16* w_rows[COLUMNS / ROWS_AT_ONCE];
#pragma unroll
  for (uint32_t i = 0; i < COLUMNS / ROWS_AT_ONCE; ++i) w_rows[i] = row_of_w(first + i * ROWS_AT_ONCE) + 8 * word;
  // Of the part that begins at `k`; the last one may end early.
  auto copy_w = [&](int slot, uint32_t k) {
    bool wanted = k + 8 * word < end;
#pragma unroll
    for (uint32_t i = 0; i < COLUMNS / ROWS_AT_ONCE; ++i) {
      copy_async(place(slot, first + i * ROWS_AT_ONCE, word), w_rows[i] + (wanted ? k : 0), wanted);
    }
  };
  auto x = places.template from<bf16>(args, m0 + first);
  auto copy_x = [&](int slot, uint32_t k) {
#pragma unroll
    for (uint32_t i = 0; i < ROWS; i += ROWS_AT_ONCE) {
      bool wanted = k + 8 * word < end && m0 + first + i < args.rows;
      const bf16* from = wanted ? x.at(args, i) + 8 * word + k : static_cast<const bf16*>(args.x);
      copy_async_cached(place(slot, COLUMNS + first + i, word), from, wanted);
    }
  };

  if (NORMS) {
    for (uint32_t k = begin + 4 * lane; k < end; k += 4 * WARP) copy_async_cached(gains + k, args.norm + k, true);
  }
#pragma unroll
  for (int s = 0; s < SLOTS; ++s) {
    if (begin + SLOT_K * s < end) copy_w(s, begin + SLOT_K * s);
  }
  if (segment_len(args) > SLOT_K * SLOTS && uint64_t(args.n) * args.k <= CACHED_LEN_MAX) {
    uint32_t row = warp_id() + lane * SEGMENTS;
    if (row < COLUMNS) prefetch_weights(row_of_w(row), 2 * args.k);
  }
  await_kernels_before();
#pragma unroll
  for (int s = 0; s < SLOTS; ++s) {
    if (begin + SLOT_K * s < end) copy_x(s, begin + SLOT_K * s);
    commit_copies();
  }

  // What the first sum of each thread is added to.
  uint32_t rows = min_of(args.rows - m0, ROWS);
  uint32_t own_row = threadIdx.x / WIDTH, own_column = n0 + threadIdx.x % WIDTH;
  float own_residual = 0.0f;
  if (args.epilogue == ADD_RESIDUAL && own_row < rows && own_column < args.n) {
    own_residual = to_float(*out_at<Out>(args, places, m0 + own_row, own_column));
  }

  float acc[COLUMN_TILES][TILES][4] = {};
  float squares = 0.0f;
  // Of the lane's 8 values of x from `k` on.
  auto gain = [&](Words4& words, uint32_t k) {
    if (k >= end) return;
    Pack8<bf16> pack = {{words}};
    Pack8<float> by = load8(gains + k);
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      float a = pack.get(i), b = pack.get(i + 1);
      squares += a * a;
      squares += b * b;
      pack.set2(i, a * by.get(i), b * by.get(i + 1));
    }
    words = pack.words[0];
  };
  for (uint32_t k0 = begin; k0 < end; k0 += SLOT_K * SLOTS) {
#pragma unroll
    for (int s = 0; s < SLOTS; ++s) {
      uint32_t k = k0 + SLOT_K * s;
      if (k >= end) break;
      wait_copies<SLOTS - 1>();
      warp_sync();
#pragma unroll
      for (uint32_t step = 0; step < WORDS / 4; ++step) {
        Words4 w[2 * COLUMN_TILES] = {};
#pragma unroll
        for (uint32_t i = 0; i < COLUMNS / 8; ++i) w[i] = *place(s, 8 * i + g, 4 * step + t);
#pragma unroll
        for (uint32_t i = 0; i < TILES; ++i) {
          Words4 x_words = *place(s, COLUMNS + M_TILE * i + g, 4 * step + t);
          if (NORMS) gain(x_words, k + K_STEP * step + 8 * t);
#pragma unroll
          for (int j = 0; j < COLUMN_TILES; ++j) multiply_step(acc[j][i], w[2 * j], w[2 * j + 1], x_words);
        }
      }
      uint32_t next = k + SLOT_K * SLOTS;
      if (next < end) {
        warp_sync();
        copy_w(s, next);
        copy_x(s, next);
      }
      commit_copies();
    }
  }

  // No copy is on its way any more.
  auto sums = reinterpret_cast<float*>(ring);
  float* all_squares = sums + SEGMENTS * ROWS * SUMS_STRIDE;
  auto total = [&](uint32_t row, uint32_t column) {
    float sum = sum_segments(args, [&](uint32_t s) { return sums[(s * ROWS + row) * SUMS_STRIDE + column]; });
    if (!NORMS) return sum;
    float of_row = 0.0f;
    for (uint32_t s = 0; s < SEGMENTS; ++s) of_row += all_squares[s * M_TILE + row];
    return sum * inv_sqrt(of_row / float(args.k) + args.eps);
  };
  if (NORMS) squares = warp_sum<4>(squares);
#pragma unroll
  for (int j = 0; j < COLUMN_TILES; ++j) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILES; ++i) {
#pragma unroll
      for (uint32_t e = 0; e < WIDTH / 4; ++e) {
        uint32_t row = M_TILE * i + 2 * t + e % 2, column = g + 8 * (e / 2);
        sums[(warp_id() * ROWS + row) * SUMS_STRIDE + column] = acc[j][i][e];
      }
    }
    if (NORMS && t == 0) all_squares[warp_id() * M_TILE + g] = squares;
    __syncthreads();
    uint32_t n = n0 + N_TILE * j;
    if (joins_pairs(args)) {
      for (uint32_t at = threadIdx.x; at < rows * WIDTH / 2; at += blockDim.x) {
        uint32_t row = at / (WIDTH / 2), column = at % (WIDTH / 2) * 2;
        if (n + column >= args.n) continue;
        finish_gated<Out>(args, places, m0 + row, n + column, total(row, column), total(row, column + 1));
      }
    } else {
      for (uint32_t at = threadIdx.x; at < rows * WIDTH; at += blockDim.x) {
        uint32_t row = at / WIDTH, column = at % WIDTH;
        if (n + column >= args.n) continue;
        if (j == 0 && at == threadIdx.x) {
          float y = shaped(args, n + column, total(row, column));
          *out_at<Out>(args, places, m0 + row, n + column) = from_float<Out>(y + own_residual);
        } else {
          finish<Out>(args, places, m0 + row, n + column, total(row, column));
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

// `TREE` says whether args.shares is not 0: a chain's sums keep all registers.
template <typename Out, bool TREE, typename Rows>
DEVICE void linear_tiled(const LinearArgs& args, const Rows& places, uint32_t m0) {
  SHARED(bf16, shared);  // [STAGES][W: TILE, x: TILE][K_STEP]
  uint32_t lane = lane_id(), g = lane / 4, t = lane % 4;
  uint32_t n0 = blockIdx.y * TILE;
  uint32_t steps = ceil_div(args.k, K_STEP), segment = segment_len(args) / K_STEP;
  auto stage = [&](uint32_t step) { return shared + step % STAGES * 2 * TILE * K_STEP; };
  // A thread copies the same words of the same rows at each step, half of them of W: null for a row that is not there.
  constexpr uint32_t THREADS = 256, COPIES = 2 * TILE * 4 / THREADS;
  uint32_t own_k = threadIdx.x % 4 * 8;
  auto x = places.template from<bf16>(args, m0);
  const bf16* rows[COPIES];
#pragma unroll
  for (uint32_t c = 0; c < COPIES; ++c) {
    uint32_t row = (threadIdx.x + c * THREADS) / 4 % TILE;
    if (c < COPIES / 2) {
      rows[c] = n0 + row < args.n ? static_cast<const bf16*>(args.weight) + uint64_t(n0 + row) * args.k + own_k : nullptr;
    } else {
      rows[c] = m0 + row < args.rows ? x.at(args, row) + own_k : nullptr;
    }
  }
  auto fetch = [&](uint32_t step) {
    bf16* to = stage(step) + threadIdx.x * 8;
    uint32_t k = step * K_STEP;
#pragma unroll
    for (uint32_t c = 0; c < COPIES; ++c) {
      bool wanted = rows[c] && k + own_k < args.k;
      copy_async(to + c * THREADS * 8, wanted ? rows[c] + k : static_cast<const bf16*>(args.weight), wanted);
    }
  };
  for (int step = 0; step < STAGES - 1; ++step) {
    if (uint32_t(step) < steps) fetch(step);
    commit_copies();
  }
  uint32_t warp_n = warp_id() % 4 * 32, warp_m = warp_id() / 4 * 64;
  float acc[WARP_N][WARP_M][4] = {}, total[WARP_N][WARP_M][4] = {};
  // Of a tree, sums of two segments and of four that wait for those beside them; in local memory, for registers have
  // room for the sum of one only.
  float waiting[2][WARP_N][WARP_M][4];
  auto each = [&](auto of) {
#pragma unroll
    for (int i = 0; i < WARP_N; ++i) {
#pragma unroll
      for (int j = 0; j < WARP_M; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) of(i, j, e);
      }
    }
  };
  // What `acc` has is of segment `s`.
  auto add_segment = [&](uint32_t s) {
    bool waits = TREE && s % 2 == 0;
    each([&](int i, int j, int e) {
      total[i][j][e] = waits ? acc[i][j][e] : total[i][j][e] + acc[i][j][e];
      acc[i][j][e] = 0.0f;
    });
    if (!TREE || waits) return;
    uint32_t level = 0;
#pragma unroll 1
    for (; s >> (level + 1) & 1; ++level) {
      each([&](int i, int j, int e) { total[i][j][e] = waiting[level][i][j][e] + total[i][j][e]; });
    }
    if (s + 1 == args.shares) return;
    each([&](int i, int j, int e) { waiting[level][i][j][e] = total[i][j][e]; });
  };
  uint32_t s = 0, end = segment;
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
      Words4 x_words = words[(TILE + warp_m + 8 * j + g) * 4 + t];
#pragma unroll
      for (int i = 0; i < WARP_N; ++i) multiply_step(acc[i][j], w[i][0], w[i][1], x_words);
    }
    if (step + 1 == end || step + 1 == steps) {
      add_segment(s);
      ++s;
      end += segment;
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
        if (!joins_pairs(args)) {
          finish<Out>(args, places, row, column, y);
        } else if (column % 2 == 0) {
          finish_gated<Out>(args, places, row, column, y, next);
        }
      }
    }
  }
}

// --- f32, for the faithful path: a warp makes two neighbouring columns of ROWS_F32 rows. ---

constexpr int ROWS_F32 = 4;

template <typename Rows>
DEVICE void linear_f32(const LinearArgs& args, const Rows& places, uint32_t m0) {
  uint32_t lane = lane_id();
  uint32_t n0 = (blockIdx.x * (blockDim.x / WARP) + warp_id()) * 2;
  if (n0 >= args.n) return;
  const float* w0 = static_cast<const float*>(args.weight) + uint64_t(n0) * args.k;
  const float* w1 = n0 + 1 < args.n ? w0 + args.k : w0;
  auto from = places.template from<float>(args, m0);
  const float* x[ROWS_F32];
#pragma unroll
  for (int r = 0; r < ROWS_F32; ++r) x[r] = from.at(args, m0 + r < args.rows ? r : 0);
  // Without shares all of k is one. Lane s keeps what the warp adds up of share s.
  uint32_t shares = args.shares ? args.shares : 1, share_len = args.k / shares;
  float kept[ROWS_F32][2] = {};
  for (uint32_t share = 0; share < shares; ++share) {
    float sums[ROWS_F32][2] = {};
    for (uint32_t k = share * share_len + lane; k < (share + 1) * share_len; k += WARP) {
      float a = w0[k], b = w1[k];
#pragma unroll
      for (int r = 0; r < ROWS_F32; ++r) {
        float value = m0 + r < args.rows ? x[r][k] : 0.0f;
        sums[r][0] += value * a;
        sums[r][1] += value * b;
      }
    }
#pragma unroll
    for (int i = 0; i < 2 * ROWS_F32; ++i) {
      float sum = warp_sum(sums[i / 2][i % 2]);
      if (lane == share) kept[i / 2][i % 2] = sum;
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS_F32; ++r) {
    float first = kept[r][0], second = kept[r][1];
    for (uint32_t beside = 1; beside < shares; beside *= 2) {
      first += shuffle_xor(first, beside);
      second += shuffle_xor(second, beside);
    }
    if (lane != 0 || m0 + r >= args.rows) continue;
    if (joins_pairs(args)) {
      finish_gated<float>(args, places, m0 + r, n0, first, second);
    } else {
      finish<float>(args, places, m0 + r, n0, first);
      if (n0 + 1 < args.n) finish<float>(args, places, m0 + r, n0 + 1, second);
    }
  }
}

}  // namespace linears
}  // namespace pd
