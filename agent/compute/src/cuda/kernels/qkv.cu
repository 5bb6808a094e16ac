// From the qkv product to rotated queries and cached keys and values.
#include "args.cuh"

using namespace pd;

namespace {

constexpr uint32_t WARPS = 8;

// One warp per head of a row: q heads, then k, then v. Shared memory: `head_dim` floats per warp.
template <typename T, typename Kv>
DEVICE void qkv_prep(const QkvPrepArgs& args) {
  SHARED(float, shared);
  const KvLayer& kv = args.kv;
  uint32_t head_dim = kv.head_dim, num_kv = kv.num_kv_heads, num_q = args.num_q_heads;
  uint32_t heads = num_q + 2 * num_kv;
  uint32_t head = blockIdx.y * WARPS + warp_id();
  if (head >= heads) return;
  uint32_t row = blockIdx.x, lane = lane_id();
  float* values = shared + warp_id() * head_dim;
  T* in = static_cast<T*>(args.qkv) + (uint64_t(row) * heads + head) * head_dim;
  const float* bias = args.bias ? args.bias + head * head_dim : nullptr;
  float squares = 0.0f;
  for (uint32_t i = lane; i < head_dim; i += WARP) {
    float value = to_float(in[i]) + (bias ? bias[i] : 0.0f);
    values[i] = value;
    squares += value * value;
  }
  bool is_q = head < num_q, is_k = !is_q && head < num_q + num_kv;
  const float* norm = is_q ? args.q_norm : is_k ? args.k_norm : nullptr;
  if (norm) {
    float scale = inv_sqrt(warp_sum(squares) / float(head_dim) + args.eps);
    for (uint32_t i = lane; i < head_dim; i += WARP) values[i] = values[i] * scale * norm[i];
  }
  warp_sync();

  T* q_out = in;
  Kv* kv_out = nullptr;
  if (!is_q) {
    uint32_t slot = args.out_slots[row];
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
  uint32_t half = args.rotary_dim / 2;
  const float* cos = args.rope + uint64_t(row) * args.rotary_dim;
  const float* sin = cos + half;
  for (uint32_t i = lane; i < head_dim; i += WARP) {
    float value = values[i];
    if ((is_q || is_k) && i < half) {
      value = value * cos[i] - values[i + half] * sin[i];
    } else if ((is_q || is_k) && i < args.rotary_dim) {
      value = value * cos[i - half] + values[i - half] * sin[i - half];
    }
    if (is_q) {
      q_out[i] = from_float<T>(value);
    } else {
      kv_out[i] = from_float<Kv>(value);
    }
  }
}

}  // namespace

// Grid: rows, heads / WARPS.
KERNEL(pd_qkv_prep_bf16, QkvPrepArgs, WARPS * 32) { qkv_prep<bf16, bf16>(args); }
KERNEL(pd_qkv_prep_f32, QkvPrepArgs, WARPS * 32) { qkv_prep<float, float>(args); }
