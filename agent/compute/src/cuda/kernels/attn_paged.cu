// Causal attention over the paged pool for steps of one query per sequence, and for any in f32: a block has a query and
// some of its heads. Prompts have attn_tile.cu and hopper.cu.
#include "attn_paged.cuh"

using namespace pd;

namespace {

// LANES lanes hold a key's head (8 elements each), 32 / LANES keys at a time.

constexpr uint32_t TOKEN_WARPS = 4;
// Keys that a lane loads before it uses them, as far as registers go.
template <typename Kv, int HEADS>
constexpr int KEYS_AHEAD_OF = sizeof(Kv) <= 2 ? (HEADS < 8 ? 4 : 2) : (HEADS < 4 ? 2 : 1);

// The result so far of one head: largest score, sum of weights, weighted sum of values.
template <int HEADS>
struct Fold {
  float largest[HEADS];
  float sum[HEADS];
  float out[HEADS][8];
};

template <typename T, typename Kv, int LANES, int HEADS, bool FORMED>
DEVICE void attend_token(const AttnArgs& args) {
  constexpr int KEYS_AHEAD = KEYS_AHEAD_OF<Kv, HEADS>;
  constexpr uint32_t KEYS = WARP / LANES;
  constexpr uint32_t DIM = LANES * 8;
  constexpr uint32_t STATE = DIM + 2;
  SHARED(float, states);  // [TOKEN_WARPS][HEADS][STATE]
  const KvLayer& kv = args.kv;
  uint32_t token = blockIdx.z, lane = lane_id();
  uint32_t group = args.num_q_heads / kv.num_kv_heads, tiles = ceil_div(group, HEADS);
  uint32_t kv_head = blockIdx.y / tiles, first = blockIdx.y % tiles * HEADS;
  uint32_t q_head = kv_head * group + first, heads = min_of(group - first, uint32_t(HEADS));
  // What the host wrote is there before the kernels that make q, k and v have ended.
  Query query = find_query(args.batch, token);
  uint32_t first_key = query.num_keys > 0 ? first_seen<FORMED>(args, query.num_keys - 1) : 0;
  uint32_t num_seen = query.num_keys - first_key;
  uint32_t per_split = ceil_div(ceil_div(num_seen, args.splits), BLOCK) * BLOCK;
  uint32_t begin = first_key + blockIdx.x * per_split, end = min_of(begin + per_split, query.num_keys);
  // Few keys leave splits without any.
  uint32_t splits = per_split > 0 ? ceil_div(num_seen, per_split) : 1;
  if (blockIdx.x >= splits) {
    await_kernels_before();
    return;
  }

  Pages pages(args, query.seq);
  uint32_t found[KEYS_AHEAD];
  auto find_pages = [&](uint32_t base) {
#pragma unroll
    for (int a = 0; a < KEYS_AHEAD; ++a) {
      uint32_t key = base + a * KEYS + lane / LANES;
      found[a] = key < end ? pages.page_of(key) : NONE;
    }
  };
  // All lanes of a warp go round equally often, for the shuffles.
  uint32_t base = begin + warp_id() * KEYS * KEYS_AHEAD;
  find_pages(base);
  await_kernels_before();

  uint32_t d = lane % LANES * 8;
  bool has_dims = d < kv.head_dim;
  float q[HEADS][8] = {};
  const T* q_row = static_cast<const T*>(args.q) + token * args.q_row_stride + uint64_t(q_head) * kv.head_dim;
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    if (uint32_t(h) < heads && has_dims) {
      Pack8<T> pack = load8(q_row + h * kv.head_dim + d);
#pragma unroll
      for (int i = 0; i < 8; ++i) q[h][i] = pack.get(i) * key_factor<Kv>(args);
    }
  }
  Fold<HEADS> fold;
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    fold.largest[h] = NO_SCORE;
    fold.sum[h] = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) fold.out[h][i] = 0.0f;
  }

  while (base < end) {
    Pack8<Kv> k[KEYS_AHEAD] = {}, v[KEYS_AHEAD] = {};
    bool is_key[KEYS_AHEAD];
#pragma unroll
    for (int a = 0; a < KEYS_AHEAD; ++a) {
      is_key[a] = found[a] != NONE;
      if (is_key[a] && has_dims) {
        const Kv* at = pages.key_in<Kv>(found[a], kv_head, base + a * KEYS + lane / LANES) + d;
        k[a] = load8(at);
        v[a] = load8(at + kv.kv_stride);
      }
    }
    // Pages of the next ones come while these do.
    base += TOKEN_WARPS * KEYS * KEYS_AHEAD;
    find_pages(base);
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
      float scores[KEYS_AHEAD];
      float largest = fold.largest[h];
#pragma unroll
      for (int a = 0; a < KEYS_AHEAD; ++a) {
        float dot = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; ++i) dot += q[h][i] * k[a].get(i);
        dot = warp_sum<LANES>(dot);
        scores[a] = is_key[a] ? score_of<FORMED>(args, dot) : NO_SCORE;
        largest = fmaxf(largest, scores[a]);
      }
      float keep = weight_of(fold.largest[h], largest);
      fold.largest[h] = largest;
      fold.sum[h] *= keep;
#pragma unroll
      for (int i = 0; i < 8; ++i) fold.out[h][i] *= keep;
#pragma unroll
      for (int a = 0; a < KEYS_AHEAD; ++a) {
        float weight = weight_of(scores[a], largest);
        fold.sum[h] += weight;
#pragma unroll
        for (int i = 0; i < 8; ++i) fold.out[h][i] += weight * v[a].get(i);
      }
    }
  }

  // The keys of a warp, then the warps.
#pragma unroll
  for (int h = 0; h < HEADS; ++h) {
    float largest = fold.largest[h];
#pragma unroll
    for (int mask = LANES; mask < int(WARP); mask *= 2) largest = fmaxf(largest, shuffle_xor(largest, mask));
    float keep = weight_of(fold.largest[h], largest);
    float sum = fold.sum[h] * keep;
#pragma unroll
    for (int mask = LANES; mask < int(WARP); mask *= 2) sum += shuffle_xor(sum, mask);
    float* state = states + (warp_id() * HEADS + h) * STATE;
    if (lane == 0) {
      state[0] = largest;
      state[1] = sum;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float out = fold.out[h][i] * keep;
#pragma unroll
      for (int mask = LANES; mask < int(WARP); mask *= 2) out += shuffle_xor(out, mask);
      if (lane < LANES) state[2 + d + i] = out;
    }
  }
  __syncthreads();

  T* out_row = static_cast<T*>(args.out) + (uint64_t(token) * args.num_q_heads + q_head) * kv.head_dim;
  uint32_t state_len = kv.head_dim + 2;
  uint64_t place = (uint64_t(token) * args.num_q_heads + q_head) * args.splits;
  for (uint32_t at = threadIdx.x; at < heads * kv.head_dim; at += blockDim.x) {
    uint32_t h = at / kv.head_dim, i = at % kv.head_dim;
    Folded all = fold_warps<TOKEN_WARPS, HEADS, STATE>(states, h, i);
    if (splits == 1) {
      Sunk sunk = with_sink<FORMED>(args, q_head + h, all.largest, all.sum);
      float mean = sunk.sum > 0.0f ? all.value * sunk.keep / sunk.sum * value_factor<Kv>(kv.v_scale) : 0.0f;
      out_row[at] = from_float<T>(mean * gate_of<FORMED, T>(args, token, q_head * kv.head_dim + at));
    } else {
      float* partial = args.partials + (place + uint64_t(h) * args.splits + blockIdx.x) * state_len;
      if (i == 0) {
        partial[0] = all.largest;
        partial[1] = all.sum;
      }
      partial[2 + i] = all.value;
    }
  }
  if (splits == 1) return;

  // The last block of this token and these heads folds what all have left, in order: a warp finds what each split of a
  // head is worth, a lane per split.
  SHARED(uint32_t, is_last);
  float* worths = states + 1;  // [HEADS][WARP]
  fence_device();
  __syncthreads();
  if (threadIdx.x == 0) {
    uint32_t* arrivals = args.arrivals + uint64_t(token) * gridDim.y + blockIdx.y;
    *is_last = atomic_add(arrivals, 1) + 1 == splits;
    if (*is_last) *arrivals = 0;
  }
  __syncthreads();
  if (!*is_last) return;
  fence_device();
  for (uint32_t h = warp_id(); h < heads; h += TOKEN_WARPS) {
    const float* partial = args.partials + (place + uint64_t(h) * args.splits + lane) * state_len;
    float largest = lane < splits ? partial[0] : NO_SCORE, sum = lane < splits ? partial[1] : 0.0f;
    float most = warp_max(largest);
    float worth = weight_of(largest, most);
    Sunk sunk = with_sink<FORMED>(args, q_head + h, most, warp_sum(sum * worth));
    worths[h * WARP + lane] = sunk.sum > 0.0f ? worth * sunk.keep / sunk.sum : 0.0f;
  }
  __syncthreads();
  for (uint32_t at = threadIdx.x; at < heads * kv.head_dim; at += blockDim.x) {
    uint32_t h = at / kv.head_dim, i = at % kv.head_dim;
    const float* partial = args.partials + (place + uint64_t(h) * args.splits) * state_len + 2 + i;
    float out = 0.0f;
#pragma unroll 8
    for (uint32_t s = 0; s < splits; ++s) out += worths[h * WARP + s] * partial[s * state_len];
    out_row[at] = from_float<T>(out * value_factor<Kv>(kv.v_scale) * gate_of<FORMED, T>(args, token, q_head * kv.head_dim + at));
  }
}

}  // namespace

// Grid: splits, KV heads · tiles of query heads, tokens. Shared memory: TOKEN_WARPS · HEADS · (8 · LANES + 2) floats.
#define ATTEND_TOKEN_AS(name, lanes, heads, formed)                  \
  KERNEL_EARLY(pd_attend_##name##_bf16, AttnArgs, TOKEN_WARPS * 32) { \
    attend_token<bf16, bf16, lanes, heads, formed>(args);             \
  }                                                                   \
  KERNEL_EARLY(pd_attend_##name##_f32, AttnArgs, TOKEN_WARPS * 32) {  \
    attend_token<float, float, lanes, heads, formed>(args);           \
  }
#define ATTEND_TOKEN(lanes, heads) ATTEND_TOKEN_AS(token_##lanes##x##heads, lanes, heads, false)
#define ATTEND_FORMED(lanes) ATTEND_TOKEN_AS(formed_##lanes##x4, lanes, 4, true)
ATTEND_TOKEN(4, 1)
ATTEND_TOKEN(4, 4)
ATTEND_TOKEN(8, 1)
ATTEND_TOKEN(8, 4)
ATTEND_TOKEN(16, 1)
ATTEND_TOKEN(16, 4)
ATTEND_TOKEN(32, 1)
ATTEND_TOKEN(32, 4)
// For the head dims that most models have: where two query heads share a KV head, and where many do.
ATTEND_TOKEN(8, 2)
ATTEND_TOKEN(16, 2)
ATTEND_TOKEN(8, 8)
ATTEND_TOKEN(16, 8)
// With windows, caps, sinks and gates, for any number of query heads: for one alone, registers do not suffice.
ATTEND_FORMED(4)
ATTEND_FORMED(8)
ATTEND_FORMED(16)
ATTEND_FORMED(32)

// Over pools of E4M3, beside bfloat16 for one query head alone, few and many; beside f32 in all forms at once.
#define ATTEND_TOKEN_F8(name, lanes, heads, formed)                      \
  KERNEL_EARLY(pd_attend_##name##_bf16_f8, AttnArgs, TOKEN_WARPS * 32) { \
    attend_token<bf16, f8, lanes, heads, formed>(args);                  \
  }
#define ATTEND_FORMED_F8(lanes)                                                       \
  ATTEND_TOKEN_F8(formed_##lanes##x4, lanes, 4, true)                                 \
  KERNEL_EARLY(pd_attend_formed_##lanes##x4_f32_f8, AttnArgs, TOKEN_WARPS * 32) {     \
    attend_token<float, f8, lanes, 4, true>(args);                                    \
  }
ATTEND_TOKEN_F8(token_4x4, 4, 4, false)
ATTEND_TOKEN_F8(token_8x1, 8, 1, false)
ATTEND_TOKEN_F8(token_8x4, 8, 4, false)
ATTEND_TOKEN_F8(token_8x8, 8, 8, false)
ATTEND_TOKEN_F8(token_16x1, 16, 1, false)
ATTEND_TOKEN_F8(token_16x4, 16, 4, false)
ATTEND_TOKEN_F8(token_16x8, 16, 8, false)
ATTEND_TOKEN_F8(token_32x4, 32, 4, false)
ATTEND_FORMED_F8(4)
ATTEND_FORMED_F8(8)
ATTEND_FORMED_F8(16)
ATTEND_FORMED_F8(32)
