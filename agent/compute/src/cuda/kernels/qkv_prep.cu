// From the qkv product to rotated queries and cached keys and values.
#include "e4m3.cuh"

using namespace pd;

namespace {

constexpr uint32_t WARPS = 8;
// Values of a head that a lane has at most.
constexpr int VALUES = 8;
constexpr uint32_t HEAD_DIM_MAX = VALUES * WARP;

// One warp per head of a row: q heads, then k, then v. All that it reads is asked for at once, what no kernel makes
// before it waits for those that make qkv. Shared memory: `head_dim` floats per warp.
template <typename T, typename Kv>
DEVICE void qkv_prep(const QkvPrepArgs& args) {
  SHARED(float, shared);
  const KvLayer& kv = args.kv;
  uint32_t head_dim = kv.head_dim, num_kv = kv.num_kv_heads, num_q = args.num_q_heads;
  uint32_t heads = num_q + 2 * num_kv;
  uint32_t head = blockIdx.y * WARPS + warp_id(), row = blockIdx.x, lane = lane_id();
  bool is_head = head < heads, is_q = head < num_q, is_k = !is_q && head < num_q + num_kv;
  const float* norm = is_q ? args.q_norm : is_k ? args.k_norm : nullptr;
  float biases[VALUES] = {}, gains[VALUES] = {};
#pragma unroll
  for (int v = 0; v < VALUES; ++v) {
    uint32_t i = lane + v * WARP;
    if (is_head && i < head_dim && args.bias) biases[v] = args.bias[head * head_dim + i];
    if (is_head && i < head_dim && norm) gains[v] = norm[i];
  }
  uint32_t slot = is_head && !is_q ? args.out_slots[row] : NONE;
  await_kernels_before();
  if (!is_head) return;

  T* in = static_cast<T*>(args.qkv) + row * args.row_stride + head * head_dim;
  uint32_t half = args.rotary_dim / 2, rotary_dim = is_q || is_k ? args.rotary_dim : 0;
  const float* rope = args.rope + uint64_t(row) * args.rotary_dim;
  float values[VALUES], cos[VALUES] = {}, sin[VALUES] = {};
  float squares = 0.0f;
#pragma unroll
  for (int v = 0; v < VALUES; ++v) {
    uint32_t i = lane + v * WARP;
    values[v] = i < head_dim ? to_float(in[i]) + biases[v] : 0.0f;
    if (i < rotary_dim) {
      const float* pair = rope + (i < half ? i : i - half);
      cos[v] = pair[0];
      sin[v] = pair[half];
    }
  }
#pragma unroll
  for (int v = 0; v < VALUES; ++v) squares += values[v] * values[v];
  float scale = norm ? inv_sqrt(warp_sum(squares) / float(head_dim) + args.eps) : 1.0f;
  float* all = shared + warp_id() * head_dim;
#pragma unroll
  for (int v = 0; v < VALUES; ++v) {
    uint32_t i = lane + v * WARP;
    if (norm) values[v] = values[v] * scale * gains[v];
    if (i < head_dim) all[i] = values[v];
  }
  warp_sync();

  Kv* kv_out = nullptr;
  if (!is_q) {
    if (slot == NONE) return;
    uint32_t page = slot / kv.page_size;
    if (page >= kv.num_pages) {
      if (lane == 0) report_fault(args.fault, OP_QKV_PREP, FAULT_SLOT, slot, kv.num_pages * kv.page_size);
      return;
    }
    uint32_t kv_head = is_k ? head - num_q : head - num_q - num_kv;
    kv_out = static_cast<Kv*>(kv.base) + page * kv.page_stride + kv_head * kv.head_stride +
             (slot % kv.page_size) * kv.slot_stride + (is_k ? 0 : kv.kv_stride);
  }
  uint32_t beyond = 0;
#pragma unroll
  for (int v = 0; v < VALUES; ++v) {
    uint32_t i = lane + v * WARP;
    if (i >= head_dim) continue;
    float value = values[v];
    if (i < half && i < rotary_dim) {
      value = value * cos[v] - all[i + half] * sin[v];
    } else if (i < rotary_dim) {
      value = value * cos[v] + all[i - half] * sin[v];
    }
    if (is_q) {
      in[i] = from_float<T>(value);
    } else {
      beyond += store_kv(kv_out + i, value, is_k ? kv.k_scale : kv.v_scale);
    }
  }
  if (!is_q) count_saturated<Kv>(kv, beyond);
}

}  // namespace

// Grid: rows, heads / WARPS.
KERNEL_EARLY(pd_qkv_prep_bf16, QkvPrepArgs, WARPS * 32) { qkv_prep<bf16, bf16>(args); }
KERNEL_EARLY(pd_qkv_prep_f32, QkvPrepArgs, WARPS * 32) { qkv_prep<float, float>(args); }
KERNEL_EARLY(pd_qkv_prep_bf16_f8, QkvPrepArgs, WARPS * 32) { qkv_prep<bf16, f8>(args); }
KERNEL_EARLY(pd_qkv_prep_f32_f8, QkvPrepArgs, WARPS * 32) { qkv_prep<float, f8>(args); }
