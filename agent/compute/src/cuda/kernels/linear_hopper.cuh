// Products of many rows on Hopper's tensor cores, where bits may depend on the number of rows: two warpgroups have 64 rows
// and all columns of a tile each; k passes by in steps of 64, through a ring of copies.
#pragma once
#include "linear.cuh"
#include "warpgroup.cuh"

namespace pd {
namespace linears {

constexpr uint32_t HOPPER_ROWS = 128, HOPPER_COLUMNS = 256, HOPPER_K_STEP = SWIZZLE_COLUMNS;
// Of one stage products read, of the one before it they may; two are on their way.
constexpr uint32_t HOPPER_STAGES = 4;

// Other devices never launch these kernels.
#ifdef PD_HAS_WARPGROUPS

constexpr uint32_t WARPGROUP_ROWS = 64, WARPGROUP_COLUMNS = 128;
constexpr uint32_t HOPPER_THREADS = 256;

// Two neighbouring columns, the first of which has an even number.
template <typename Out, typename Rows>
DEVICE void finish_two(const LinearArgs& args, const Rows& places, uint32_t row, uint32_t column, float y, float next) {
  if (column >= args.n) return;
  if (joins_pairs(args)) {
    finish_gated<Out>(args, places, row, column, y, next);
  } else if (sizeof(Out) == sizeof(bf16) && args.n % 2 == 0 && args.epilogue != ADD_RESIDUAL) {
    uint32_t pair = pack_bf16(shaped(args, column, y), shaped(args, column + 1, next));
    *reinterpret_cast<uint32_t*>(out_at<Out>(args, places, row, column)) = pair;
  } else {
    finish<Out>(args, places, row, column, y);
    if (column + 1 < args.n) finish<Out>(args, places, row, column + 1, next);
  }
}

// What a thread copies: one word of every 32nd row of x and of W.
struct TileCopies {
  static constexpr uint32_t WORDS = HOPPER_K_STEP / 8, ROW_STEP = HOPPER_THREADS / WORDS;
  static constexpr uint32_t X_LEN = HOPPER_ROWS * HOPPER_K_STEP, STAGE_LEN = X_LEN + HOPPER_COLUMNS * HOPPER_K_STEP;

  bf16* ring;  // [HOPPER_STAGES][x: HOPPER_ROWS, W: HOPPER_COLUMNS][64], swizzled
  const bf16* x[HOPPER_ROWS / ROW_STEP];
  const bf16* w;
  uint32_t k, row, rows, columns;

  template <typename Rows>
  DEVICE TileCopies(const LinearArgs& args, const Rows& places, uint32_t m0, uint32_t n0, bf16* ring)
      : ring(ring), k(args.k), row(threadIdx.x / WORDS) {
    rows = min_of(args.rows - m0, HOPPER_ROWS);
    columns = min_of(args.n - n0, HOPPER_COLUMNS);
    uint32_t first = threadIdx.x % WORDS * 8;
    auto from = places.template from<bf16>(args, m0);
#pragma unroll
    for (uint32_t i = 0; i < HOPPER_ROWS / ROW_STEP; ++i) {
      uint32_t at = row + i * ROW_STEP;
      x[i] = from.at(args, at < rows ? at : 0) + first;
    }
    w = static_cast<const bf16*>(args.weight) + uint64_t(n0 + row) * k + first;
  }

  DEVICE const bf16* stage(uint32_t step) const { return ring + step % HOPPER_STAGES * STAGE_LEN; }

  // Zeros where there is nothing.
  DEVICE void fetch(uint32_t step) const {
    uint32_t first = step * HOPPER_K_STEP, word = threadIdx.x % WORDS;
    bool has_k = first + word * 8 < k;
    bf16* to = ring + step % HOPPER_STAGES * STAGE_LEN + swizzled_128(row, word);
#pragma unroll
    for (uint32_t i = 0; i < HOPPER_ROWS / ROW_STEP; ++i) {
      bool wanted = has_k && row + i * ROW_STEP < rows;
      copy_async(to + i * ROW_STEP * SWIZZLE_COLUMNS, wanted ? x[i] + first : x[0], wanted);
    }
#pragma unroll
    for (uint32_t i = 0; i < HOPPER_COLUMNS / ROW_STEP; ++i) {
      bool wanted = has_k && row + i * ROW_STEP < columns;
      copy_async(to + X_LEN + i * ROW_STEP * SWIZZLE_COLUMNS, wanted ? w + uint64_t(i * ROW_STEP) * k + first : x[0], wanted);
    }
  }
};

template <typename Out, typename Rows>
DEVICE void linear_hopper(const LinearArgs& args, const Rows& places, uint32_t m0, uint32_t n0) {
  SHARED(bf16, unaligned);
  TileCopies copies(args, places, m0, n0, swizzle_aligned(unaligned));
  uint32_t steps = ceil_div(args.k, HOPPER_K_STEP), first = threadIdx.x / 128 * WARPGROUP_ROWS;
  auto fetch = [&](uint32_t step) {
    if (step < steps) copies.fetch(step);
    commit_copies();
  };
  // A step's copies are there for all, and no products read the stage of two steps before.
  auto await_step = [] {
    wait_copies<1>();
    publish_to_products();
    __syncthreads();
  };
  fetch(0);
  fetch(1);
  if (first >= copies.rows) {
    for (uint32_t step = 0; step < steps; ++step) {
      await_step();
      fetch(step + 2);
    }
    wait_copies<0>();
    return;
  }
  float left[WARPGROUP_COLUMNS / 2], right[WARPGROUP_COLUMNS / 2];
  for (uint32_t step = 0; step < steps; ++step) {
    await_step();
    SharedMatrix x(copies.stage(step) + first * SWIZZLE_COLUMNS, 16);
    SharedMatrix w(copies.stage(step) + TileCopies::X_LEN, 16);
    begin_products();
#pragma unroll
    for (uint32_t s = 0; s < HOPPER_K_STEP; s += 16) {
      multiply_warpgroup(left, x.from(s), w.from(s), step + s > 0);
      multiply_warpgroup(right, x.from(s), w.from(WARPGROUP_COLUMNS * SWIZZLE_COLUMNS + s), step + s > 0);
    }
    commit_products();
    fetch(step + 2);
    wait_products<1>(left);
    wait_products<1>(right);
  }
  wait_copies<0>();
  wait_products<0>(left);
  wait_products<0>(right);
  uint32_t lane = lane_id(), t = lane % 4, row = first + warp_id() % 4 * 16 + lane / 4;
#pragma unroll
  for (uint32_t half = 0; half < 2; ++half) {
    uint32_t at = row + 8 * half;
    if (at >= copies.rows) continue;
#pragma unroll
    for (uint32_t i = 0; i < WARPGROUP_COLUMNS / 8; ++i) {
      uint32_t column = n0 + 8 * i + 2 * t, e = 4 * i + 2 * half;
      finish_two<Out>(args, places, m0 + at, column, left[e], left[e + 1]);
      finish_two<Out>(args, places, m0 + at, column + WARPGROUP_COLUMNS, right[e], right[e + 1]);
    }
  }
}

#else
template <typename Out, typename Rows>
DEVICE void linear_hopper(const LinearArgs&, const Rows&, uint32_t, uint32_t) {}
#endif

}  // namespace linears
}  // namespace pd
