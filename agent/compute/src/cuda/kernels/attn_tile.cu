// Causal attention of prompts over the paged pool, on tensor cores: tiles of 64 queries of one head, of which a warp has 16;
// blocks of 64 keys pass by. Hopper has a better one for the plain form (hopper.cu).
#include "attn_paged.cuh"

using namespace pd;

namespace {

constexpr uint32_t QUERIES = 64;
constexpr uint32_t THREADS = 128;

// Where 16-byte word `word` of a row of DIM elements lies in shared memory: rows that are read together lie in
// different banks.
template <int DIM>
DEVICE uint32_t swizzled(uint32_t row, uint32_t word) {
  uint32_t turn = (row & 1) << 2 | (row >> 1 & 3);
  return row * DIM + (word ^ turn) * 8;
}

// A ring of two blocks of keys and values as they lie in the pool.
template <int DIM, typename Kv>
struct Blocks {
  static constexpr uint32_t WORD_LEN = 16 / sizeof(Kv), WORDS = DIM / WORD_LEN;

  Kv* ring;  // [2][K, V][BLOCK][DIM]
  bf16* expanded;  // [K, V][BLOCK][DIM], of a pool of E4M3

  DEVICE explicit Blocks(void* shared)
      : ring(static_cast<Kv*>(shared)), expanded(reinterpret_cast<bf16*>(ring + 4 * BLOCK * DIM)) {}

  DEVICE Kv* stage(uint32_t block) const { return ring + block % 2 * 2 * BLOCK * DIM; }

  // Keys from `first_key` to `last_key`, zeros where there are no others.
  DEVICE void fetch(const Pages& pages, uint32_t kv_head, uint32_t block, uint32_t first_key, uint32_t last_key) const {
    const KvLayer& kv = pages.args.kv;
    Kv* to = stage(block);
    for (uint32_t i = threadIdx.x; i < BLOCK * WORDS; i += blockDim.x) {
      uint32_t row = i / WORDS, word = i % WORDS, key = block * BLOCK + row;
      const Kv* at = key <= last_key && key >= first_key ? pages.key_at<Kv>(kv_head, key) : nullptr;
      const Kv* from = at ? at + word * WORD_LEN : static_cast<const Kv*>(kv.base);
      uint32_t place = HAS_SCALES<Kv> ? row * DIM + word * WORD_LEN : swizzled<DIM>(row, word);
      copy_async(to + place, from, at != nullptr);
      copy_async(to + BLOCK * DIM + place, at ? from + kv.kv_stride : from, at != nullptr);
    }
  }

  // The block's keys, swizzled, and its values behind them, once they are there for all threads.
  DEVICE const bf16* read(uint32_t block) const {
    if constexpr (HAS_SCALES<Kv>) {
      const Kv* from = stage(block);
      for (uint32_t i = threadIdx.x; i < 2 * BLOCK * DIM / 8; i += blockDim.x) {
        uint32_t row = i / (DIM / 8), word = i % (DIM / 8);
        bf16* to = expanded + row / BLOCK * BLOCK * DIM + swizzled<DIM>(row % BLOCK, word);
        *reinterpret_cast<Words4*>(to) = load8(from + i * 8).expanded();
      }
      __syncthreads();
      return expanded;
    } else {
      return stage(block);
    }
  }
};

template <int DIM, typename Kv, bool FORMED>
DEVICE void attend_tile(const AttnArgs& args) {
  constexpr int STEPS = DIM / 32, KEY_TILES = BLOCK / 8, DIM_TILES = DIM / 8;
  SHARED(bf16, shared);
  TilePlace place;
  if (!find_tile<QUERIES>(args.batch, blockIdx.x, place)) return;
  const KvLayer& kv = args.kv;
  uint32_t q_head = blockIdx.y, kv_head = q_head / (args.num_q_heads / kv.num_kv_heads);
  uint32_t lane = lane_id(), g = lane / 4, t = lane % 4;
  uint32_t row0 = warp_id() * 16 + g, row1 = row0 + 8;
  uint32_t last_key = place.position + place.rows - 1;
  uint32_t first_key = first_seen<FORMED>(args, place.position), first_block = first_key / BLOCK;
  uint32_t blocks = last_key / BLOCK + 1;

  Pages pages(args, place.seq);
  Blocks<DIM, Kv> ring(shared);
  auto fetch = [&](uint32_t block) { ring.fetch(pages, kv_head, block, first_key, last_key); };
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
    const bf16* keys = ring.read(block);
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
          score = is_seen ? score_of<FORMED>(args, score * key_factor<Kv>(args)) : NO_SCORE;
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
    float scale = sunk.sum > 0.0f ? sunk.keep / sunk.sum * value_factor<Kv>(kv.v_scale) : 0.0f;
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

// Grid: tiles, query heads. Shared memory: 8 · BLOCK · DIM bytes.
KERNEL(pd_attend_tile_64, AttnArgs, THREADS) { attend_tile<64, bf16, false>(args); }
KERNEL(pd_attend_tile_128, AttnArgs, THREADS) { attend_tile<128, bf16, false>(args); }
KERNEL(pd_attend_formed_tile_64, AttnArgs, THREADS) { attend_tile<64, bf16, true>(args); }
KERNEL(pd_attend_formed_tile_128, AttnArgs, THREADS) { attend_tile<128, bf16, true>(args); }
KERNEL(pd_attend_tile_64_f8, AttnArgs, THREADS) { attend_tile<64, f8, false>(args); }
KERNEL(pd_attend_tile_128_f8, AttnArgs, THREADS) { attend_tile<128, f8, false>(args); }
KERNEL(pd_attend_formed_tile_64_f8, AttnArgs, THREADS) { attend_tile<64, f8, true>(args); }
KERNEL(pd_attend_formed_tile_128_f8, AttnArgs, THREADS) { attend_tile<128, f8, true>(args); }
