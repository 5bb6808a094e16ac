// RMS norm, with the residual addition before it.
#include "args.cuh"

using namespace pd;

namespace {

constexpr uint32_t NORM_THREADS = 256;

// Sum over the block, in one order; every thread gets it. `warps` holds a float per warp.
DEVICE float block_sum(float value, float* warps) {
  value = warp_sum(value);
  if (lane_id() == 0) warps[warp_id()] = value;
  __syncthreads();
  float sum = 0.0f;
  for (uint32_t w = 0; w < blockDim.x / WARP; ++w) sum += warps[w];
  return sum;
}

// Packs of 8 weights that a thread loads before it waits for the kernels that make x: those of rows up to 4096.
constexpr int EARLY_PACKS = 2;

// One row per block. Shared memory: a float per warp, then the row.
template <typename T>
DEVICE void rms_norm(const RmsNormArgs& args) {
  SHARED(float, shared);
  float* row = shared + NORM_THREADS / WARP;
  bool in_packs = args.hidden % 8 == 0;
  Pack8<float> early[EARLY_PACKS] = {};
#pragma unroll
  for (int p = 0; p < EARLY_PACKS; ++p) {
    uint32_t i = 8 * (threadIdx.x + p * NORM_THREADS);
    if (in_packs && i < args.hidden) early[p] = load8(args.weight + i);
  }
  await_kernels_before();
  uint64_t at = uint64_t(blockIdx.x) * args.hidden;
  T* x = static_cast<T*>(args.x) + at;
  const T* add = args.add ? static_cast<const T*>(args.add) + at : nullptr;
  T* out = static_cast<T*>(args.out) + at;
  float squares = 0.0f;
  if (in_packs) {
    for (uint32_t i = 8 * threadIdx.x; i < args.hidden; i += 8 * NORM_THREADS) {
      Pack8<T> pack = load8(x + i);
      if (add) {
        Pack8<T> more = load8(add + i);
#pragma unroll
        for (int j = 0; j < 8; j += 2) pack.set2(j, pack.get(j) + more.get(j), pack.get(j + 1) + more.get(j + 1));
        store8(x + i, pack);
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        float value = pack.get(j);
        row[i + j] = value;
        squares += value * value;
      }
    }
  } else {
    for (uint32_t i = threadIdx.x; i < args.hidden; i += NORM_THREADS) {
      T sum = x[i];
      if (add) {
        sum = from_float<T>(to_float(sum) + to_float(add[i]));
        x[i] = sum;
      }
      float value = to_float(sum);
      row[i] = value;
      squares += value * value;
    }
  }
  float scale = inv_sqrt(block_sum(squares, shared) / float(args.hidden) + args.eps);
  auto store_pack = [&](uint32_t i, const Pack8<float>& weight) {
    Pack8<T> pack;
    if (args.adds) pack = load8(out + i);
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      float a = row[i + j] * scale * weight.get(j);
      float b = row[i + j + 1] * scale * weight.get(j + 1);
      if (args.adds) {
        a += pack.get(j);
        b += pack.get(j + 1);
      }
      pack.set2(j, a, b);
    }
    store8(out + i, pack);
  };
  if (in_packs) {
#pragma unroll
    for (int p = 0; p < EARLY_PACKS; ++p) {
      uint32_t i = 8 * (threadIdx.x + p * NORM_THREADS);
      if (i < args.hidden) store_pack(i, early[p]);
    }
    for (uint32_t i = 8 * (threadIdx.x + EARLY_PACKS * NORM_THREADS); i < args.hidden; i += 8 * NORM_THREADS) {
      store_pack(i, load8(args.weight + i));
    }
  } else {
    for (uint32_t i = threadIdx.x; i < args.hidden; i += NORM_THREADS) {
      float y = row[i] * scale * args.weight[i];
      if (args.adds) y += to_float(out[i]);
      out[i] = from_float<T>(y);
    }
  }
}

}  // namespace

// Grid: rows.
KERNEL_EARLY(pd_rms_norm_bf16, RmsNormArgs, NORM_THREADS) { rms_norm<bf16>(args); }
KERNEL_EARLY(pd_rms_norm_f32, RmsNormArgs, NORM_THREADS) { rms_norm<float>(args); }
