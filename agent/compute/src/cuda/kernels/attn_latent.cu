// Attention over latents: keys whose first elements are the values, one for all query heads. A block has one query and
// two of its heads; its warps take the keys in turn, at every step in the same order.
#include "attn_paged.cuh"

using namespace pd;

namespace {

constexpr uint32_t LATENT_WARPS = 4, HEADS = 2;
// A lane has as many packs of 8 elements of a key, 256 elements apart.
constexpr int PACKS = 3;
constexpr uint32_t DIM_MAX = PACKS * 8 * WARP;

template <typename Kv>
struct LatentKey {
  Pack8<Kv> packs[PACKS];
  bool is_there;
};

template <typename T, typename Kv>
DEVICE void attend_latent(const AttnArgs& args) {
  constexpr uint32_t STATE = DIM_MAX + 2;
  SHARED(float, partials);  // [LATENT_WARPS][HEADS][STATE]: largest score, sum of weights, weighted sum of values
  const KvLayer& kv = args.kv;
  uint32_t tiles = ceil_div(args.num_q_heads, HEADS), token = blockIdx.x / tiles, lane = lane_id();
  uint32_t q_head = blockIdx.x % tiles * HEADS;
  uint32_t heads = min_of(args.num_q_heads - q_head, HEADS);
  Query query = find_query(args.batch, token);
  Pages pages(args, query.seq);

  const T* q_row = static_cast<const T*>(args.q) + token * args.q_row_stride + uint64_t(q_head) * kv.head_dim;
  float q[HEADS][PACKS][8] = {}, outs[HEADS][PACKS][8] = {}, largest[HEADS], sums[HEADS] = {};
#pragma unroll
  for (uint32_t h = 0; h < HEADS; ++h) {
    largest[h] = NO_SCORE;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      uint32_t d = (lane + p * WARP) * 8;
      if (h >= heads || d >= kv.head_dim) continue;
      Pack8<T> pack = load8(q_row + h * kv.head_dim + d);
#pragma unroll
      for (int i = 0; i < 8; ++i) q[h][p][i] = pack.get(i) * key_factor<Kv>(args);
    }
  }
  auto fetch = [&](uint32_t key) {
    LatentKey<Kv> found = {};
    const Kv* at = key < query.num_keys ? pages.key_at<Kv>(0, key) : nullptr;
    found.is_there = at != nullptr;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
      uint32_t d = (lane + p * WARP) * 8;
      if (at && d < kv.head_dim) found.packs[p] = load8(at + d);
    }
    return found;
  };
  LatentKey<Kv> next = fetch(warp_id());
  for (uint32_t key = warp_id(); key < query.num_keys; key += LATENT_WARPS) {
    LatentKey<Kv> now = next;
    // The next one comes while this one is weighed.
    next = fetch(key + LATENT_WARPS);
    if (!now.is_there) continue;
#pragma unroll
    for (uint32_t h = 0; h < HEADS; ++h) {
      float score = 0.0f;
#pragma unroll
      for (int p = 0; p < PACKS; ++p) {
#pragma unroll
        for (int i = 0; i < 8; ++i) score += q[h][p][i] * now.packs[p].get(i);
      }
      score = warp_sum(score);
      float most = fmaxf(largest[h], score);
      float keep = weight_of(largest[h], most), weight = weight_of(score, most);
      largest[h] = most;
      sums[h] = sums[h] * keep + weight;
#pragma unroll
      for (int p = 0; p < PACKS; ++p) {
#pragma unroll
        for (int i = 0; i < 8; ++i) outs[h][p][i] = outs[h][p][i] * keep + weight * now.packs[p].get(i);
      }
    }
  }

#pragma unroll
  for (uint32_t h = 0; h < HEADS; ++h) {
    float* state = partials + (warp_id() * HEADS + h) * STATE;
    if (lane == 0) {
      state[0] = largest[h];
      state[1] = sums[h];
    }
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
#pragma unroll
      for (int i = 0; i < 8; ++i) state[2 + (lane + p * WARP) * 8 + i] = outs[h][p][i];
    }
  }
  __syncthreads();
  T* out = static_cast<T*>(args.out) + (uint64_t(token) * args.num_q_heads + q_head) * args.value_dim;
  for (uint32_t at = threadIdx.x; at < heads * args.value_dim; at += blockDim.x) {
    uint32_t h = at / args.value_dim, i = at % args.value_dim;
    Folded all = fold_warps<LATENT_WARPS, HEADS, STATE>(partials, h, i);
    out[at] = from_float<T>(all.sum > 0.0f ? all.value / all.sum * value_factor<Kv>(kv.k_scale) : 0.0f);
  }
}

}  // namespace

// Grid: tokens · query heads / HEADS, of which a token has neighbours. Shared memory: LATENT_WARPS · HEADS · (DIM_MAX + 2) floats.
KERNEL(pd_attend_latent_bf16, AttnArgs, LATENT_WARPS * 32) { attend_latent<bf16, bf16>(args); }
KERNEL(pd_attend_latent_f32, AttnArgs, LATENT_WARPS * 32) { attend_latent<float, float>(args); }
KERNEL(pd_attend_latent_bf16_f8, AttnArgs, LATENT_WARPS * 32) { attend_latent<bf16, f8>(args); }
KERNEL(pd_attend_latent_f32_f8, AttnArgs, LATENT_WARPS * 32) { attend_latent<float, f8>(args); }
