// Causal attention over the paged pool: one kernel for steps of one query per sequence (and for f32), one on tensor
// cores for prefill, which Hopper has a better one for (hopper.cu).
#include "attn_paged.cuh"

using namespace pd;

namespace {

// A score without a value: what remains of the values, and the new sum of weights.
struct Sunk {
  float keep;
  float sum;
};

template <bool FORMED>
DEVICE Sunk with_sink(const AttnArgs& args, uint32_t q_head, float largest, float sum) {
  if (!FORMED || !args.sinks) return Sunk{1.0f, sum};
  float sink = args.sinks[q_head] * LOG2_E;
  float most = fmaxf(largest, sink);
  float keep = weight_of(largest, most);
  return Sunk{keep, sum * keep + exp2_fast(sink - most)};
}

// What a result is multiplied by; `at` counts from the token's first head.
template <bool FORMED, typename T>
DEVICE float gate_of(const AttnArgs& args, uint32_t token, uint32_t at) {
  if (!FORMED || !args.gate) return 1.0f;
  return sigmoid(to_float(static_cast<const T*>(args.gate)[token * args.gate_row_stride + at]));
}

// --- One query token per block: LANES lanes hold a key's head (8 elements each), 32 / LANES keys at a time. ---

constexpr uint32_t TOKEN_WARPS = 4;
// Keys that a lane loads before it uses them, as far as registers go.
template <typename Kv, int HEADS>
constexpr int KEYS_AHEAD_OF = sizeof(Kv) == 2 ? (HEADS < 8 ? 4 : 2) : (HEADS < 4 ? 2 : 1);

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
      for (int i = 0; i < 8; ++i) q[h][i] = pack.get(i) * args.scale_log2;
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
      float mean = sunk.sum > 0.0f ? all.value * sunk.keep / sunk.sum : 0.0f;
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
    out_row[at] = from_float<T>(out * gate_of<FORMED, T>(args, token, q_head * kv.head_dim + at));
  }
}

// --- Tiles of 64 queries of one head on tensor cores: a warp has 16 of them, blocks of 64 keys pass by. ---

constexpr uint32_t TILE_QUERIES = 64;
constexpr uint32_t TILE_THREADS = 128;

// Where 16-byte word `word` of a row of DIM elements lies in shared memory: rows that are read together lie in
// different banks.
template <int DIM>
DEVICE uint32_t swizzled(uint32_t row, uint32_t word) {
  uint32_t turn = (row & 1) << 2 | (row >> 1 & 3);
  return row * DIM + (word ^ turn) * 8;
}

template <int DIM, bool FORMED>
DEVICE void attend_tile(const AttnArgs& args) {
  constexpr int WORDS = DIM / 8, STEPS = DIM / 32, KEY_TILES = BLOCK / 8, DIM_TILES = DIM / 8;
  SHARED(bf16, shared);  // [2][K, V][BLOCK][DIM]
  TilePlace place;
  if (!find_tile<TILE_QUERIES>(args.batch, blockIdx.x, place)) return;
  const KvLayer& kv = args.kv;
  uint32_t q_head = blockIdx.y, kv_head = q_head / (args.num_q_heads / kv.num_kv_heads);
  uint32_t lane = lane_id(), g = lane / 4, t = lane % 4;
  uint32_t row0 = warp_id() * 16 + g, row1 = row0 + 8;
  uint32_t last_key = place.position + place.rows - 1;
  uint32_t first_key = first_seen<FORMED>(args, place.position), first_block = first_key / BLOCK;
  uint32_t blocks = last_key / BLOCK + 1;

  Pages pages(args, place.seq);
  auto stage = [&](uint32_t block) { return shared + block % 2 * 2 * BLOCK * DIM; };
  auto fetch = [&](uint32_t block) {
    bf16* to = stage(block);
    for (uint32_t i = threadIdx.x; i < BLOCK * WORDS; i += blockDim.x) {
      uint32_t row = i / WORDS, word = i % WORDS, key = block * BLOCK + row;
      const bf16* at = key <= last_key && (!FORMED || key >= first_key) ? pages.key_at<bf16>(kv_head, key) : nullptr;
      const bf16* from = at ? at + word * 8 : static_cast<const bf16*>(kv.base);
      copy_async(to + swizzled<DIM>(row, word), from, at != nullptr);
      copy_async(to + BLOCK * DIM + swizzled<DIM>(row, word), at ? from + kv.kv_stride : from, at != nullptr);
    }
  };
  fetch(first_block);
  commit_copies();

  // Queries stay in registers, in the order of `multiply_step`'s operands.
  Words4 q[STEPS][2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t row = half ? row1 : row0;
    if (row < place.rows) {
      const bf16* from =
          static_cast<const bf16*>(args.q) + (place.first + row) * args.q_row_stride + uint64_t(q_head) * DIM;
#pragma unroll
      for (int s = 0; s < STEPS; ++s) q[s][half] = *reinterpret_cast<const Words4*>(from + 32 * s + 8 * t);
    }
  }
  float largest[2] = {NO_SCORE, NO_SCORE}, sum[2] = {0.0f, 0.0f};
  float out[DIM_TILES][4] = {};
  for (uint32_t block = first_block; block < blocks; ++block) {
    if (block + 1 < blocks) fetch(block + 1);
    commit_copies();
    wait_copies<1>();
    __syncthreads();
    const bf16* keys = stage(block);
    const bf16* values = keys + BLOCK * DIM;

    float scores[KEY_TILES][4] = {};
#pragma unroll
    for (int j = 0; j < KEY_TILES; ++j) {
#pragma unroll
      for (int s = 0; s < STEPS; ++s) {
        Words4 k = *reinterpret_cast<const Words4*>(keys + swizzled<DIM>(8 * j + g, 4 * s + t));
        uint32_t a[4] = {q[s][0].w[0], q[s][1].w[0], q[s][0].w[1], q[s][1].w[1]};
        uint32_t b[2] = {k.w[0], k.w[1]};
        mma_16x8x16(scores[j], a, b);
        uint32_t c[4] = {q[s][0].w[2], q[s][1].w[2], q[s][0].w[3], q[s][1].w[3]};
        uint32_t d[2] = {k.w[2], k.w[3]};
        mma_16x8x16(scores[j], c, d);
      }
    }
    float keep[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t seen = place.position + (half ? row1 : row0);
      float most = largest[half];
#pragma unroll
      for (int j = 0; j < KEY_TILES; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = scores[j][2 * half + e];
          uint32_t key = block * BLOCK + 8 * j + 2 * t + e;
          bool is_seen = key <= seen && (!FORMED || seen - key < args.window);
          score = is_seen ? score_of<FORMED>(args, score * args.scale_log2) : NO_SCORE;
          most = fmaxf(most, score);
        }
      }
      most = warp_max<4>(most);
      keep[half] = weight_of(largest[half], most);
      largest[half] = most;
      float added = 0.0f;
#pragma unroll
      for (int j = 0; j < KEY_TILES; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& score = scores[j][2 * half + e];
          score = weight_of(score, most);
          added += score;
        }
      }
      sum[half] = sum[half] * keep[half] + warp_sum<4>(added);
    }
#pragma unroll
    for (int i = 0; i < DIM_TILES; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) out[i][e] *= keep[e / 2];
    }
#pragma unroll
    for (int j = 0; j < KEY_TILES / 2; ++j) {
      const float(&low)[4] = scores[2 * j];
      const float(&high)[4] = scores[2 * j + 1];
      uint32_t weights[4] = {pack_bf16(low[0], low[1]), pack_bf16(low[2], low[3]), pack_bf16(high[0], high[1]),
                             pack_bf16(high[2], high[3])};
#pragma unroll
      for (int i = 0; i < DIM_TILES / 2; ++i) {
        // Matrices: keys 0..8 and 8..16 of dims 0..8, then of dims 8..16.
        uint32_t row = 16 * j + lane % 16, word = 2 * i + lane / 16;
        uint32_t v[4];
        load_matrices_transposed(v, values + swizzled<DIM>(row, word));
        uint32_t first[2] = {v[0], v[1]}, second[2] = {v[2], v[3]};
        mma_16x8x16(out[2 * i], weights, first);
        mma_16x8x16(out[2 * i + 1], weights, second);
      }
    }
    // Before the next fetch overwrites this stage.
    __syncthreads();
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t row = half ? row1 : row0;
    if (row >= place.rows) continue;
    bf16* to = static_cast<bf16*>(args.out) + (uint64_t(place.first + row) * args.num_q_heads + q_head) * DIM;
    Sunk sunk = with_sink<FORMED>(args, q_head, largest[half], sum[half]);
    float scale = sunk.sum > 0.0f ? sunk.keep / sunk.sum : 0.0f;
#pragma unroll
    for (int i = 0; i < DIM_TILES; ++i) {
      float first = out[i][2 * half] * scale, second = out[i][2 * half + 1] * scale;
      if (FORMED && args.gate) {
        uint32_t at = q_head * DIM + 8 * i + 2 * t;
        first *= gate_of<FORMED, bf16>(args, place.first + row, at);
        second *= gate_of<FORMED, bf16>(args, place.first + row, at + 1);
      }
      uint32_t pair = pack_bf16(first, second);
      *reinterpret_cast<uint32_t*>(to + 8 * i + 2 * t) = pair;
    }
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

// Grid: tiles, query heads. Shared memory: 4 · BLOCK · DIM elements.
KERNEL(pd_attend_tile_64, AttnArgs, TILE_THREADS) { attend_tile<64, false>(args); }
KERNEL(pd_attend_tile_128, AttnArgs, TILE_THREADS) { attend_tile<128, false>(args); }
KERNEL(pd_attend_formed_tile_64, AttnArgs, TILE_THREADS) { attend_tile<64, true>(args); }
KERNEL(pd_attend_formed_tile_128, AttnArgs, TILE_THREADS) { attend_tile<128, true>(args); }
