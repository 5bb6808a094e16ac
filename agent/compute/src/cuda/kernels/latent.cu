// Multi-head latent attention, but for attention itself (attn_latent.cu): rotated queries and cached latents, and the
// products of each head with a matrix of its own.
#include "e4m3.cuh"
#include "linear.cuh"

using namespace pd;
using namespace pd::linears;

namespace {

constexpr uint32_t PREP_THREADS = 256;

// Element i of a vector of `dim` that is rotated by halves.
template <typename T>
DEVICE float rotated(const T* from, const float* rope, uint32_t i, uint32_t dim) {
  uint32_t half = dim / 2, pair = i < half ? i : i - half;
  float cos = rope[pair], sin = rope[half + pair], value = to_float(from[i]);
  return i < half ? value * cos - to_float(from[i + half]) * sin : value * cos + to_float(from[i - half]) * sin;
}

// A block has a row.
template <typename T, typename Kv>
DEVICE void mla_prep(const MlaPrepArgs& args) {
  SHARED(float, warps);  // [PREP_THREADS / 32]
  const KvLayer& kv = args.kv;
  uint32_t row = blockIdx.x, latent_dim = args.latent_dim, rope_dim = args.rope_dim;
  uint32_t head_dim = latent_dim + rope_dim, q_dim = args.nope_dim + rope_dim;
  const float* rope = args.rope + uint64_t(row) * rope_dim;
  const T* q = static_cast<const T*>(args.q) + uint64_t(row) * args.num_heads * q_dim + args.nope_dim;
  T* q_out = static_cast<T*>(args.q_out) + uint64_t(row) * args.num_heads * head_dim + latent_dim;
  for (uint32_t at = threadIdx.x; at < args.num_heads * rope_dim; at += PREP_THREADS) {
    uint32_t head = at / rope_dim, i = at % rope_dim;
    q_out[head * head_dim + i] = from_float<T>(rotated(q + head * q_dim, rope, i, rope_dim));
  }

  const T* latent = static_cast<const T*>(args.latent) + uint64_t(row) * head_dim;
  float squares = 0.0f;
  for (uint32_t i = threadIdx.x; i < latent_dim; i += PREP_THREADS) {
    float value = to_float(latent[i]);
    squares += value * value;
  }
  squares = warp_sum(squares);
  if (lane_id() == 0) warps[warp_id()] = squares;
  __syncthreads();
  float sum = 0.0f;
  for (uint32_t w = 0; w < PREP_THREADS / WARP; ++w) sum += warps[w];
  float scale = inv_sqrt(sum / float(latent_dim) + args.eps);

  uint32_t slot = args.out_slots[row], page = slot / kv.page_size;
  if (slot == NONE) return;
  if (page >= kv.num_pages) {
    if (threadIdx.x == 0) report_fault(args.fault, OP_MLA_PREP, FAULT_SLOT, slot, kv.num_pages * kv.page_size);
    return;
  }
  Kv* to = static_cast<Kv*>(kv.base) + page * kv.page_stride + slot % kv.page_size * kv.slot_stride;
  uint32_t beyond = 0;
  for (uint32_t i = threadIdx.x; i < head_dim; i += PREP_THREADS) {
    float value = i < latent_dim ? to_float(latent[i]) * scale * args.norm[i]
                                 : rotated(latent + latent_dim, rope, i - latent_dim, rope_dim);
    beyond += store_kv(to + i, value, kv.k_scale);
  }
  count_saturated<Kv>(kv, beyond);
}

// A head of rows that have all heads one after another.
struct HeadRows {
  uint64_t x_first, x_row_stride, out_first, out_row_stride;

  template <typename T>
  struct From {
    const T* first;
    uint64_t row_stride;
    DEVICE const T* at(const LinearArgs&, uint32_t row) const { return first + row * row_stride; }
  };
  template <typename T>
  DEVICE From<T> from(const LinearArgs& args, uint32_t first) const {
    return From<T>{static_cast<const T*>(args.x) + x_first + first * x_row_stride, x_row_stride};
  }
  DEVICE uint64_t out(uint32_t row, uint32_t) const { return out_first + row * out_row_stride; }
};

template <typename T>
DEVICE HeadRows find_head(const HeadLinearArgs& args, uint32_t head, LinearArgs& product) {
  product = args.product;
  product.weight = static_cast<const T*>(product.weight) + uint64_t(head) * product.n * product.k;
  return HeadRows{head * args.x_head_stride, args.heads * args.x_head_stride, head * args.out_head_stride,
                  args.heads * args.out_head_stride};
}

}  // namespace

// Grid: rows.
KERNEL(pd_mla_prep_bf16, MlaPrepArgs, PREP_THREADS) { mla_prep<bf16, bf16>(args); }
KERNEL(pd_mla_prep_f32, MlaPrepArgs, PREP_THREADS) { mla_prep<float, float>(args); }
KERNEL(pd_mla_prep_bf16_f8, MlaPrepArgs, PREP_THREADS) { mla_prep<bf16, f8>(args); }
KERNEL(pd_mla_prep_f32_f8, MlaPrepArgs, PREP_THREADS) { mla_prep<float, f8>(args); }

// Grid: rows and columns by what a block makes, heads. Shared memory: as the linears of linear.cu.
KERNEL_EARLY(pd_head_linear_8x16_bf16, HeadLinearArgs, 256) {
  LinearArgs product;
  HeadRows places = find_head<bf16>(args, blockIdx.z, product);
  linear_few<8, 16, 3, 8, false, bf16>(product, places, blockIdx.x * 8);
}
KERNEL_EARLY(pd_head_linear_32x32_bf16, HeadLinearArgs, 256) {
  LinearArgs product;
  HeadRows places = find_head<bf16>(args, blockIdx.z, product);
  linear_few<32, 32, 3, 4, false, bf16>(product, places, blockIdx.x * 32);
}
// Grid: n / 16, rows / ROWS_F32, heads.
KERNEL(pd_head_linear_full_f32, HeadLinearArgs, 256) {
  LinearArgs product;
  HeadRows places = find_head<float>(args, blockIdx.z, product);
  linear_f32(product, places, blockIdx.y * ROWS_F32);
}
