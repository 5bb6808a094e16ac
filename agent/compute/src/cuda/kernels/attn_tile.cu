// Causal attention of prompts over the paged pool, on tensor cores: tiles of 64 queries of one head, of which a warp has 16;
// blocks of 64 keys pass by, or of 32 where heads are wide. Hopper has a better one for the plain form of narrow heads
// (hopper.cu).
#include "attn_paged.cuh"

using namespace pd;

namespace {

constexpr uint32_t QUERIES = 64;
constexpr uint32_t THREADS = 128;
// Of a block where a head has 256 elements: with 64 neither registers nor shared memory would do for two tiles at a time.
constexpr uint32_t WIDE_KEYS = 32;

template <int DIM>
constexpr bool IS_WIDE = DIM > 128;
template <int DIM>
constexpr uint32_t KEYS = IS_WIDE<DIM> ? WIDE_KEYS : BLOCK;
// Elements of a query that lie in shared memory, since registers do not hold all.
constexpr uint32_t WIDE_ASIDE = 64;

// Where 16-byte word `word` of a row of DIM elements lies in shared memory: rows that are read together lie in
// different banks.
template <int DIM>
DEVICE uint32_t swizzled(uint32_t row, uint32_t word) {
  uint32_t turn = (row & 1) << 2 | (row >> 1 & 3);
  return row * DIM + (word ^ turn) * 8;
}
// `more` words on in the row of the word at `place`, whose number has no bit of that: mostly an offset known in advance.
DEVICE uint32_t swizzled_on(uint32_t place, uint32_t more) { return (place ^ more % 8 * 8) + more / 8 * 64; }

// A ring of two blocks of keys and values as they lie in the pool.
template <int DIM, typename Kv>
struct Blocks {
  static constexpr uint32_t WORD_LEN = 16 / sizeof(Kv), WORDS = DIM / WORD_LEN, BLOCK_LEN = KEYS<DIM> * DIM;

  Pages pages;
  uint32_t kv_head;
  // Others are zeros.
  uint32_t first_key, last_key;
  Kv* ring;  // [2][K, V][KEYS][DIM]
  bf16* expanded;  // [K, V][KEYS][DIM], of a pool of E4M3
  uint32_t page;  // of wide heads: as the table names it, of this lane's key of the block that is fetched next

  DEVICE Blocks(const Pages& pages, uint32_t kv_head, uint32_t first_key, uint32_t last_key, void* shared)
      : pages(pages), kv_head(kv_head), first_key(first_key), last_key(last_key), ring(static_cast<Kv*>(shared)),
        expanded(reinterpret_cast<bf16*>(ring + 4 * BLOCK_LEN)) {
    if constexpr (IS_WIDE<DIM>) look_up(first_key / KEYS<DIM>);
  }

  DEVICE Kv* stage(uint32_t block) const { return ring + block % 2 * 2 * BLOCK_LEN; }
  DEVICE bool has(uint32_t key) const { return key <= last_key && key >= first_key; }

  DEVICE void copy_word(uint32_t block, uint32_t row, uint32_t word, const Kv* from, bool wanted) const {
    Kv* to = stage(block) + (HAS_SCALES<Kv> ? row * DIM + word * WORD_LEN : swizzled<DIM>(row, word));
    copy_async(to, from, wanted);
    copy_async(to + BLOCK_LEN, wanted ? from + pages.args.kv.kv_stride : from, wanted);
  }

  DEVICE void fetch(uint32_t block) {
    if constexpr (IS_WIDE<DIM>) {
      fetch_wide(block);
    } else {
      for (uint32_t i = threadIdx.x; i < KEYS<DIM> * WORDS; i += THREADS) {
        uint32_t row = i / WORDS, word = i % WORDS, key = block * KEYS<DIM> + row;
        const Kv* at = has(key) ? pages.key_at<Kv>(kv_head, key) : nullptr;
        const Kv* from = at ? at + word * WORD_LEN : static_cast<const Kv*>(pages.args.kv.base);
        copy_word(block, row, word, from, at != nullptr);
      }
    }
  }

  DEVICE void look_up(uint32_t block) {
    uint32_t key = block * KEYS<DIM> + lane_id();
    page = has(key) ? pages.named_page(key) : 0;
  }

  // A lane finds one key's place for its warp, since the words of a wide head are many; then it looks up the page of its
  // next one, which is there by the next call.
  DEVICE void fetch_wide(uint32_t block) {
    constexpr uint32_t ROW_STEP = THREADS / WORDS, ROWS = KEYS<DIM> / ROW_STEP;
    static_assert(KEYS<DIM> == WARP && (HAS_SCALES<Kv> || ROW_STEP == 4), "a lane has a key, a warp every fourth row");
    const KvLayer& kv = pages.args.kv;
    uint32_t own_key = block * KEYS<DIM> + lane_id();
    uint64_t own = 0;  // the address, none of a key that is not there
    if (has(own_key)) {
      if (page < kv.num_pages) {
        own = reinterpret_cast<uint64_t>(pages.key_in<Kv>(page, kv_head, own_key));
      } else {
        pages.report(page);
      }
    }
    uint32_t row = threadIdx.x / WORDS, word = threadIdx.x % WORDS;
    Kv* to = stage(block) + (HAS_SCALES<Kv> ? row * DIM + word * WORD_LEN : 0);
    uint32_t at = swizzled<DIM>(row, word);
#pragma unroll
    for (uint32_t i = 0; i < ROWS; ++i) {
      uint64_t address = shuffle_from(own, row + i * ROW_STEP);
      const Kv* from = reinterpret_cast<const Kv*>(address + word * 16);
      // Four rows on, the second bit of what words are turned by is another.
      Kv* place = to + i * ROW_STEP * DIM + (HAS_SCALES<Kv> ? 0 : at ^ i % 2 * 16);
      copy_async(place, from, address != 0);
      copy_async(place + BLOCK_LEN, from + kv.kv_stride, address != 0);
    }
    look_up(block + 1);
  }

  // The block's keys, swizzled, and its values behind them, once they are there for all threads.
  DEVICE const bf16* read(uint32_t block) const {
    if constexpr (HAS_SCALES<Kv>) {
      const Kv* from = stage(block);
      for (uint32_t i = threadIdx.x; i < 2 * BLOCK_LEN / 8; i += THREADS) {
        uint32_t row = i / (DIM / 8), word = i % (DIM / 8);
        bf16* to = expanded + row / KEYS<DIM> * BLOCK_LEN + swizzled<DIM>(row % KEYS<DIM>, word);
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
  constexpr int STEPS = DIM / 32, KEY_TILES = KEYS<DIM> / 8, DIM_TILES = DIM / 8;
  // By how much, in units of log2, a score may exceed what all are weighed against before that becomes another: what wide
  // heads have added up is much to multiply at every block.
  constexpr float SLACK = IS_WIDE<DIM> ? 8.0f : 0.0f;
  // Steps of a query that registers hold.
  constexpr int KEPT = STEPS - (IS_WIDE<DIM> ? WIDE_ASIDE / 32 : 0);
  // Tiles of keys whose products are under way at a time.
  constexpr int ABREAST = IS_WIDE<DIM> ? KEY_TILES : 1;
  SHARED(bf16, shared);
  TilePlace place;
  // The last tiles see most keys: wide heads begin with these.
  uint32_t tile = IS_WIDE<DIM> ? gridDim.y - 1 - blockIdx.y : blockIdx.x;
  if (!find_tile<QUERIES>(args.batch, tile, place)) return;
  const KvLayer& kv = args.kv;
  uint32_t q_head = IS_WIDE<DIM> ? blockIdx.x : blockIdx.y, kv_head = q_head / (args.num_q_heads / kv.num_kv_heads);
  uint32_t lane = lane_id(), g = lane / 4, t = lane % 4;
  uint32_t row0 = warp_id() * 16 + g, row1 = row0 + 8;
  uint32_t last_key = place.position + place.rows - 1;
  uint32_t first_key = first_seen<FORMED>(args, place.position), first_block = first_key / KEYS<DIM>;
  uint32_t blocks = last_key / KEYS<DIM> + 1;

  Blocks<DIM, Kv> ring(Pages(args, place.seq), kv_head, first_key, last_key, shared);
  ring.fetch(first_block);
  commit_copies();

  // Queries stay in registers as operands of products, or in places of each thread's own where these do not do.
  Words4 q[KEPT][2];
  Words4* aside = reinterpret_cast<Words4*>(shared + 4 * KEYS<DIM> * DIM) + threadIdx.x;
#pragma unroll
  for (int s = 0; s < STEPS; ++s) {
    Words4 of[2] = {};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t row = half ? row1 : row0;
      const bf16* from =
          static_cast<const bf16*>(args.q) + (place.first + row) * args.q_row_stride + uint64_t(q_head) * DIM;
      if (row < place.rows) of[half] = *reinterpret_cast<const Words4*>(from + 32 * s + 8 * t);
    }
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const uint32_t(&a)[4] = of[0].w, (&b)[4] = of[1].w;
      Words4 operand = {{a[2 * part], b[2 * part], a[2 * part + 1], b[2 * part + 1]}};
      if (s < KEPT) {
        q[s][part] = operand;
      } else {
        aside[((s - KEPT) * 2 + part) * THREADS] = operand;
      }
    }
  }
  uint32_t key_at = swizzled<DIM>(g, t), value_at = swizzled<DIM>(lane % 16, lane / 16);
  float largest[2] = {NO_SCORE, NO_SCORE}, sum[2] = {0.0f, 0.0f};
  float out[DIM_TILES][4] = {};
  for (uint32_t block = first_block; block < blocks; ++block) {
    wait_copies<0>();
    // The block is there for all threads, and all are done with the one before it, whose stage is the next one's.
    __syncthreads();
    if (block + 1 < blocks) ring.fetch(block + 1);
    commit_copies();
    const bf16* keys = ring.read(block);
    const bf16* values = keys + KEYS<DIM> * DIM;

    float scores[KEY_TILES][4] = {};
#pragma unroll
    for (int first = 0; first < KEY_TILES; first += ABREAST) {
#pragma unroll
      for (int s = 0; s < STEPS; ++s) {
        Words4 k[ABREAST];
        Words4 low = s < KEPT ? q[s][0] : aside[(s - KEPT) * 2 * THREADS];
        Words4 high = s < KEPT ? q[s][1] : aside[((s - KEPT) * 2 + 1) * THREADS];
#pragma unroll
        for (int j = 0; j < ABREAST; ++j) {
          k[j] = *reinterpret_cast<const Words4*>(keys + 8 * (first + j) * DIM + swizzled_on(key_at, 4 * s));
          uint32_t b[2] = {k[j].w[0], k[j].w[1]};
          mma_16x8x16(scores[first + j], low.w, b);
        }
#pragma unroll
        for (int j = 0; j < ABREAST; ++j) {
          uint32_t b[2] = {k[j].w[2], k[j].w[3]};
          mma_16x8x16(scores[first + j], high.w, b);
        }
      }
    }
    // Whether some query of the warp does not see some key of the block.
    uint32_t block_key = block * KEYS<DIM>, warp_seen = place.position + warp_id() * 16;
    bool is_edge = block_key + KEYS<DIM> - 1 > warp_seen || (FORMED && warp_seen + 15 - block_key >= args.window);
    float keep[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t seen = place.position + (half ? row1 : row0);
#pragma unroll
      for (int i = 0; i < 2 * KEY_TILES; ++i) scores[i / 2][2 * half + i % 2] *= key_factor<Kv>(args);
      if (FORMED && args.softcap_log2 != 0.0f) {
#pragma unroll
        for (int i = 0; i < 2 * KEY_TILES; ++i) {
          float& score = scores[i / 2][2 * half + i % 2];
          score = score_of<FORMED>(args, score);
        }
      }
      if (is_edge) {
#pragma unroll
        for (int i = 0; i < 2 * KEY_TILES; ++i) {
          uint32_t key = block_key + i / 2 * 8 + 2 * t + i % 2;
          bool is_seen = key <= seen && (!FORMED || seen - key < args.window);
          if (!is_seen) scores[i / 2][2 * half + i % 2] = NO_SCORE;
        }
      }
      float most = largest[half];
#pragma unroll
      for (int i = 0; i < 2 * KEY_TILES; ++i) most = fmaxf(most, scores[i / 2][2 * half + i % 2]);
      most = warp_max<4>(most);
      if (!(most > largest[half] + SLACK)) most = largest[half];
      keep[half] = weight_of(largest[half], most);
      largest[half] = most;
      float base = most == NO_SCORE ? 0.0f : most, added = 0.0f;
#pragma unroll
      for (int i = 0; i < 2 * KEY_TILES; ++i) {
        float& score = scores[i / 2][2 * half + i % 2];
        score = exp2_fast(score - base);
        added += score;
      }
      sum[half] = sum[half] * keep[half] + warp_sum<4>(added);
    }
    // Most often all is worth what it was before.
    if (!IS_WIDE<DIM> || warp_any(keep[0] != 1.0f || keep[1] != 1.0f)) {
#pragma unroll
      for (int i = 0; i < DIM_TILES; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) out[i][e] *= keep[e / 2];
      }
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
        uint32_t v[4];
        load_matrices_transposed(v, values + 16 * j * DIM + swizzled_on(value_at, 2 * i));
        uint32_t first[2] = {v[0], v[1]}, second[2] = {v[2], v[3]};
        mma_16x8x16(out[2 * i], weights, first);
        mma_16x8x16(out[2 * i + 1], weights, second);
      }
    }
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
        const bf16* gate = static_cast<const bf16*>(args.gate) + (place.first + row) * args.gate_row_stride;
        uint32_t gates = *reinterpret_cast<const uint32_t*>(gate + q_head * DIM + 8 * i + 2 * t);
        first *= sigmoid(bits_to_float(gates << 16));
        second *= sigmoid(bits_to_float(gates & 0xffff0000u));
      }
      uint32_t pair = pack_bf16(first, second);
      *reinterpret_cast<uint32_t*>(to + 8 * i + 2 * t) = pair;
    }
  }
}

}  // namespace

// Grid: tiles, query heads; the other way round where heads are wide. Shared memory: 8 · KEYS · DIM bytes, and of wide heads
// QUERIES · WIDE_ASIDE elements.
KERNEL(pd_attend_tile_64, AttnArgs, THREADS) { attend_tile<64, bf16, false>(args); }
KERNEL(pd_attend_tile_128, AttnArgs, THREADS) { attend_tile<128, bf16, false>(args); }
KERNEL(pd_attend_tile_256, AttnArgs, THREADS) { attend_tile<256, bf16, false>(args); }
KERNEL(pd_attend_formed_tile_64, AttnArgs, THREADS) { attend_tile<64, bf16, true>(args); }
KERNEL(pd_attend_formed_tile_128, AttnArgs, THREADS) { attend_tile<128, bf16, true>(args); }
KERNEL(pd_attend_formed_tile_256, AttnArgs, THREADS) { attend_tile<256, bf16, true>(args); }
KERNEL(pd_attend_tile_64_f8, AttnArgs, THREADS) { attend_tile<64, f8, false>(args); }
KERNEL(pd_attend_tile_128_f8, AttnArgs, THREADS) { attend_tile<128, f8, false>(args); }
KERNEL(pd_attend_tile_256_f8, AttnArgs, THREADS) { attend_tile<256, f8, false>(args); }
KERNEL(pd_attend_formed_tile_64_f8, AttnArgs, THREADS) { attend_tile<64, f8, true>(args); }
KERNEL(pd_attend_formed_tile_128_f8, AttnArgs, THREADS) { attend_tile<128, f8, true>(args); }
KERNEL(pd_attend_formed_tile_256_f8, AttnArgs, THREADS) { attend_tile<256, f8, true>(args); }
