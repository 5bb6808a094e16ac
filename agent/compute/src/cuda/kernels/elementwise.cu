// Embedding, norms, the rotary table, row and page copies.
#include "args.cuh"

using namespace pd;

namespace {

constexpr uint32_t COPY_THREADS = 128;
constexpr uint32_t NORM_THREADS = 256;

// The block copies `bytes`, an even number, from and to places that are at least 2-byte aligned.
DEVICE void copy_block(void* to, const void* from, uint64_t bytes) {
  uint64_t all = uint64_t(to) | uint64_t(from) | bytes;
  if (all % 16 == 0) {
    auto src = reinterpret_cast<const Words4*>(from);
    auto dst = reinterpret_cast<Words4*>(to);
    for (uint64_t i = threadIdx.x; i < bytes / 16; i += blockDim.x) dst[i] = src[i];
  } else {
    auto src = reinterpret_cast<const uint16_t*>(from);
    auto dst = reinterpret_cast<uint16_t*>(to);
    for (uint64_t i = threadIdx.x; i < bytes / 2; i += blockDim.x) dst[i] = src[i];
  }
}

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
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      float a = row[i + j] * scale * weight.get(j);
      float b = row[i + j + 1] * scale * weight.get(j + 1);
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
      out[i] = from_float<T>(row[i] * scale * args.weight[i]);
    }
  }
}

// Sine and cosine of 0 ≤ x < 2^20 within 1e-15, by the polynomials of the CPU backend, so that both backends'
// tables agree; a GPU has doubles to spare here.
DEVICE void sin_cos(double x, double& sin, double& cos) {
  double quarters = rint(x * 0.636619772367581343);
  double r = (x - quarters * 1.5707963267341256) - quarters * 6.077100506506192e-11;
  double r2 = r * r;
  double s = -1.0 / 1307674368000.0;
  s = s * r2 + 1.0 / 6227020800.0;
  s = s * r2 - 1.0 / 39916800.0;
  s = s * r2 + 1.0 / 362880.0;
  s = s * r2 - 1.0 / 5040.0;
  s = s * r2 + 1.0 / 120.0;
  s = s * r2 - 1.0 / 6.0;
  s = r + r * r2 * s;
  double c = 1.0 / 20922789888000.0;
  c = c * r2 - 1.0 / 87178291200.0;
  c = c * r2 + 1.0 / 479001600.0;
  c = c * r2 - 1.0 / 3628800.0;
  c = c * r2 + 1.0 / 40320.0;
  c = c * r2 - 1.0 / 720.0;
  c = c * r2 + 1.0 / 24.0;
  c = c * r2 - 0.5;
  c = 1.0 + r2 * c;
  int quadrant = int(quarters) & 3;
  sin = quadrant == 0 ? s : quadrant == 1 ? c : quadrant == 2 ? -s : -c;
  cos = quadrant == 0 ? c : quadrant == 1 ? -s : quadrant == 2 ? -c : s;
}

}  // namespace

// Grid: rows.
KERNEL(pd_embed, EmbedArgs, COPY_THREADS) {
  uint32_t token = args.token_ids[blockIdx.x];
  auto to = static_cast<uint8_t*>(args.out) + uint64_t(blockIdx.x) * args.row_bytes;
  if (token == NONE) {
    auto row = reinterpret_cast<uint16_t*>(to);
    for (uint32_t i = threadIdx.x; i < args.row_bytes / 2; i += COPY_THREADS) row[i] = 0;
    return;
  }
  if (token >= args.vocab) {
    if (threadIdx.x == 0) report_fault(args.fault, OP_EMBED, FAULT_TOKEN, token, args.vocab);
    return;
  }
  auto from = static_cast<const uint8_t*>(args.table) + uint64_t(token) * args.row_bytes;
  copy_block(to, from, args.row_bytes);
}

// Grid: rows.
KERNEL_EARLY(pd_rms_norm_bf16, RmsNormArgs, NORM_THREADS) { rms_norm<bf16>(args); }
KERNEL_EARLY(pd_rms_norm_f32, RmsNormArgs, NORM_THREADS) { rms_norm<float>(args); }

// Grid: rows · half, by threads.
KERNEL(pd_rope_table, RopeTableArgs, COPY_THREADS) {
  uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= args.rows * args.half) return;
  uint32_t r = at / args.half, i = at % args.half;
  // The angle is rounded to f32, as the reference implementations do.
  float angle = float(args.positions[r]) * args.inv_freq[i];
  double sin, cos;
  sin_cos(double(angle), sin, cos);
  float* row = args.out + uint64_t(r) * 2 * args.half;
  row[i] = float(cos) * args.factor;
  row[args.half + i] = float(sin) * args.factor;
}

// Grid: rows.
KERNEL(pd_gather_rows, GatherRowsArgs, COPY_THREADS) {
  uint32_t row = args.indices[blockIdx.x];
  if (row == NONE) return;
  if (row >= args.src_rows) {
    if (threadIdx.x == 0) report_fault(args.fault, OP_GATHER_ROWS, FAULT_ROW, row, args.src_rows);
    return;
  }
  auto from = static_cast<const uint8_t*>(args.src) + row * args.row_bytes;
  copy_block(static_cast<uint8_t*>(args.out) + blockIdx.x * args.row_bytes, from, args.row_bytes);
}

// Grid: pages.
KERNEL(pd_copy_pages, CopyPagesArgs, COPY_THREADS) {
  uint32_t page = args.page_indices[blockIdx.x];
  if (page >= args.num_pool_pages) {
    if (threadIdx.x == 0) report_fault(args.fault, OP_COPY_PAGES, FAULT_PAGE, page, args.num_pool_pages);
    return;
  }
  auto pool = static_cast<uint8_t*>(args.pool) + page * args.cut_page_bytes;
  auto host = static_cast<uint8_t*>(args.host) + blockIdx.x * args.host_page_bytes + args.host_offset_bytes;
  copy_block(args.to_host ? host : pool, args.to_host ? pool : host, args.cut_page_bytes);
}
