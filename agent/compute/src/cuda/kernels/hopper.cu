// Causal attention over the paged pool on Hopper's tensor cores: two warpgroups have 64 queries of one head each, blocks
// of 128 keys pass by. While a warpgroup weighs the scores of one block, its tensor cores multiply the values of the block
// before it, and those of the other warpgroup go on.
#include "attn_paged.cuh"
#include "warpgroup.cuh"

using namespace pd;

namespace {

constexpr uint32_t THREADS = 256;

// Other devices never launch these kernels.
#ifdef PD_HAS_WARPGROUPS

constexpr uint32_t QUERIES = 128;
constexpr uint32_t KEYS = 128;
constexpr uint32_t WARPGROUP = 128, WARPGROUP_QUERIES = 64, WARP_QUERIES = 16;
constexpr uint32_t STAGES = 2;
// Blocks whose keys' places are known at a time.
constexpr uint32_t FOUND = 4;

// Copies of keys and values into rings of blocks. A thread finds one key's place for all, and copies the same word of
// every ROW_STEPth row. Beyond the last key the first one is copied: its score is left out, and its value is a number
// where the others are.
template <int DIM>
struct Pipeline {
  static constexpr uint32_t WORDS = DIM / 8, ROW_STEP = THREADS / WORDS, ROWS = KEYS / ROW_STEP;
  static constexpr uint32_t BLOCK_LEN = KEYS * DIM, PLANE_LEN = KEYS * SWIZZLE_COLUMNS;

  Pages table;
  bf16* ring;  // [STAGES][K, V][DIM / 64][KEYS][64], swizzled
  uint64_t* places;  // [FOUND][KEYS]: bytes from the pool's first key of the head
  uint64_t first_place;
  const unsigned char* head;  // this thread's word of that key
  uint32_t last_key;
  uint32_t row;
  uint32_t to;  // this thread's place in a block
  uint32_t page;  // of the key that this thread finds next

  DEVICE Pipeline(const AttnArgs& args, uint32_t seq, uint32_t kv_head, uint32_t last_key, bf16* ring)
      : table(args, seq), ring(ring), last_key(last_key) {
    places = reinterpret_cast<uint64_t*>(ring + STAGES * 2 * BLOCK_LEN);
    uint32_t word = threadIdx.x % WORDS;
    head = reinterpret_cast<const unsigned char*>(static_cast<const bf16*>(args.kv.base) +
                                                  kv_head * args.kv.head_stride + word * 8);
    first_place = 0;
    uint32_t first_page = table.named_page(0);
    if (first_page < args.kv.num_pages) first_place = sizeof(bf16) * table.offset_in(first_page, 0);
    row = threadIdx.x / WORDS;
    to = word / 8 * PLANE_LEN + swizzled_128(row, word % 8);
    look_up(0);
    for (uint32_t block = 0; block <= STAGES; ++block) find(block);
  }

  DEVICE bf16* keys_of(uint32_t block) const { return ring + block % STAGES * 2 * BLOCK_LEN; }
  DEVICE bf16* values_of(uint32_t block) const { return keys_of(block) + BLOCK_LEN; }

  DEVICE void look_up(uint32_t block) {
    uint32_t key = block * KEYS + threadIdx.x;
    page = threadIdx.x < KEYS && key <= last_key ? table.named_page(key) : NONE;
  }

  // Of `block`, whose pages were looked up; looks up those of the next one.
  DEVICE void find(uint32_t block) {
    if (threadIdx.x < KEYS) {
      uint32_t key = block * KEYS + threadIdx.x;
      bool exists = page < table.args.kv.num_pages;
      if (!exists && key <= last_key) table.report(page);
      places[block % FOUND * KEYS + threadIdx.x] = exists ? sizeof(bf16) * table.offset_in(page, key) : first_place;
    }
    look_up(block + 1);
  }

  // Keys or values of `block`, whose places are known.
  DEVICE void copy(uint32_t block, bf16* stage, const unsigned char* from) {
    const uint64_t* at = places + block % FOUND * KEYS + row;
    uint64_t offsets[ROWS];
#pragma unroll
    for (uint32_t i = 0; i < ROWS; ++i) offsets[i] = at[i * ROW_STEP];
#pragma unroll
    for (uint32_t i = 0; i < ROWS; ++i) {
      copy_async(stage + to + i * ROW_STEP * SWIZZLE_COLUMNS, from + offsets[i], true);
    }
  }

  // Group i of copies: keys of block i, values of the one before it.
  DEVICE void copy_group(uint32_t i) {
    if (i > 0) copy(i - 1, values_of(i - 1), head + sizeof(bf16) * table.args.kv.kv_stride);
    copy(i, keys_of(i), head);
    commit_copies();
  }
};

// Queries of the tile, swizzled; zeros where there are none.
template <int DIM>
DEVICE void copy_queries(bf16* to, const AttnArgs& args, const TilePlace& place, uint32_t q_head) {
  constexpr uint32_t WORDS = DIM / 8;
  const bf16* from = static_cast<const bf16*>(args.q) + place.first * args.q_row_stride + uint64_t(q_head) * DIM;
  for (uint32_t i = threadIdx.x; i < QUERIES * WORDS; i += THREADS) {
    uint32_t row = i / WORDS, word = i % WORDS;
    bool wanted = row < place.rows;
    copy_async(to + word / 8 * QUERIES * SWIZZLE_COLUMNS + swizzled_128(row, word % 8),
               from + (wanted ? row : 0) * args.q_row_stride + word * 8, wanted);
  }
}

// One row's largest score so far and this lane's part of the sum of its weights, for rows g and g + 8.
struct Weighing {
  float largest[2];
  float sum[2];
};

// Scores become weights; `keep` is what weights so far are worth now.
template <int LEN>
DEVICE void weigh(float (&scores)[LEN], Weighing& so_far, float (&keep)[2], float scale_log2) {
  // Several chains each, since a scheduler has no other warps to go on with.
  constexpr int CHAINS = 4;
  float most[2][CHAINS], added[2][CHAINS] = {}, offset[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) most[half][c] = so_far.largest[half];
  }
#pragma unroll
  for (int i = 0; i < LEN; ++i) {
    float& chain = most[i % 4 / 2][i / 4 % CHAINS];
    chain = fmaxf(chain, scores[i]);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float(&m)[CHAINS] = most[half];
    float largest = warp_max<4>(fmaxf(fmaxf(m[0], m[1]), fmaxf(m[2], m[3])));
    keep[half] = exp2_fast((so_far.largest[half] - largest) * scale_log2);
    so_far.largest[half] = largest;
    offset[half] = largest * scale_log2;
  }
#pragma unroll
  for (int i = 0; i < LEN; ++i) {
    scores[i] = exp2_fast(scores[i] * scale_log2 - offset[i % 4 / 2]);
    added[i % 4 / 2][i / 4 % CHAINS] += scores[i];
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float(&a)[CHAINS] = added[half];
    so_far.sum[half] = so_far.sum[half] * keep[half] + ((a[0] + a[1]) + (a[2] + a[3]));
  }
}

template <int DIM>
DEVICE void attend(const AttnArgs& args) {
  constexpr int STEPS = DIM / 16, KEY_STEPS = KEYS / 16, SCORES = KEYS / 2, OUTS = DIM / 2;
  SHARED(bf16, unaligned);
  TilePlace place;
  // The last tiles see most keys.
  if (!find_tile<QUERIES>(args.batch, gridDim.y - 1 - blockIdx.y, place)) return;
  uint32_t q_head = blockIdx.x, kv_head = q_head / (args.num_q_heads / args.kv.num_kv_heads);
  uint32_t lane = lane_id(), g = lane / 4, t = lane % 4;
  uint32_t last_key = place.position + place.rows - 1, blocks = last_key / KEYS + 1;

  bf16* queries = swizzle_aligned(unaligned);  // [DIM / 64][QUERIES][64], swizzled
  using Pipe = Pipeline<DIM>;
  Pipe pipe(args, place.seq, kv_head, last_key, queries + QUERIES * DIM);
  copy_queries<DIM>(queries, args, place, q_head);
  __syncthreads();
  for (uint32_t i = 0; i < STAGES; ++i) pipe.copy_group(i);

  // Rows of this warp: g and g + 8 from `row` on.
  uint32_t first = threadIdx.x / WARPGROUP * WARPGROUP_QUERIES, row = warp_id() * WARP_QUERIES;
  // Blocks that a query of this warpgroup sees; none where it has no query.
  uint32_t last_row = min_of(first + WARPGROUP_QUERIES, place.rows) - 1;
  uint32_t mine = first < place.rows ? (place.position + last_row) / KEYS + 1 : 0;

  float scores[SCORES], out[OUTS] = {}, keep[2];
  uint32_t weights[KEY_STEPS][4];
  Weighing so_far{{NO_SCORE, NO_SCORE}, {0.0f, 0.0f}};
  SharedMatrix q(queries + first * SWIZZLE_COLUMNS, 16);
  auto multiply_keys = [&](uint32_t block) {
    SharedMatrix keys(pipe.keys_of(block), 16);
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      uint32_t plane = s / 4, within = s % 4 * 16;
      multiply_warpgroup(scores, q.from(plane * QUERIES * SWIZZLE_COLUMNS + within),
                         keys.from(plane * Pipe::PLANE_LEN + within), s > 0);
    }
    commit_products();
  };
  auto multiply_values = [&](uint32_t block) {
    SharedMatrix values(pipe.values_of(block), 2 * Pipe::PLANE_LEN);
#pragma unroll
    for (int s = 0; s < KEY_STEPS; ++s) {
      multiply_warpgroup_transposed(out, weights[s], values.from(16 * s * SWIZZLE_COLUMNS), true);
    }
    commit_products();
  };
  auto weigh_block = [&](uint32_t block) {
    if (block * KEYS + KEYS - 1 > place.position + row) {
#pragma unroll
      for (int i = 0; i < SCORES; ++i) {
        uint32_t key = block * KEYS + i / 4 * 8 + 2 * t + i % 2, seen = place.position + row + g + i % 4 / 2 * 8;
        if (key > seen) scores[i] = NO_SCORE;
      }
    }
    weigh(scores, so_far, keep, args.scale_log2);
  };
  auto pack_weights = [&] {
#pragma unroll
    for (int s = 0; s < KEY_STEPS; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[s][i] = pack_bf16(scores[8 * s + 2 * i], scores[8 * s + 2 * i + 1]);
    }
  };

  wait_copies<STAGES - 1>();
  publish_to_products();
  __syncthreads();
  if (mine > 0) {
    begin_products();
    multiply_keys(0);
    wait_products<0>(scores);
    weigh_block(0);
    pack_weights();
  }
  for (uint32_t block = 0; block < blocks; ++block) {
    // The next group of copies is there for all, and the stage before it is free for the one after.
    wait_copies<STAGES - 2>();
    publish_to_products();
    __syncthreads();
    if (block + 1 < mine) {
      begin_products();
      multiply_keys(block + 1);
      multiply_values(block);
      pipe.copy_group(block + STAGES);
      pipe.find(block + STAGES + 1);
      wait_products<1>(scores);
      weigh_block(block + 1);
      wait_products<0>(out);
#pragma unroll
      for (int i = 0; i < OUTS; ++i) out[i] *= keep[i % 4 / 2];
      pack_weights();
    } else {
      pipe.copy_group(block + STAGES);
      pipe.find(block + STAGES + 1);
      if (block < mine) {
        begin_products();
        multiply_values(block);
        wait_products<0>(out);
      }
    }
  }
  wait_copies<0>();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = warp_sum<4>(so_far.sum[half]);
    uint32_t at = row + g + 8 * half;
    if (at >= place.rows) continue;
    bf16* to = static_cast<bf16*>(args.out) + (uint64_t(place.first + at) * args.num_q_heads + q_head) * DIM;
    float scale = sum > 0.0f ? 1.0f / sum : 0.0f;
#pragma unroll
    for (int i = 0; i < OUTS / 4; ++i) {
      uint32_t pair = pack_bf16(out[4 * i + 2 * half] * scale, out[4 * i + 2 * half + 1] * scale);
      *reinterpret_cast<uint32_t*>(to + 8 * i + 2 * t) = pair;
    }
  }
}

#else
template <int DIM>
DEVICE void attend(const AttnArgs&) {}
#endif

}  // namespace

// Grid: query heads, tiles. Shared memory: QUERIES · DIM and 2 · STAGES · KEYS · DIM elements, FOUND · KEYS places of 8
// bytes, and SWIZZLE_ALIGN bytes.
KERNEL(pd_attend_hopper_64, AttnArgs, THREADS) { attend<64>(args); }
KERNEL(pd_attend_hopper_128, AttnArgs, THREADS) { attend<128>(args); }
