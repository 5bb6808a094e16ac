// Causal attention over the paged pool on Hopper's tensor cores: two warpgroups have 64 queries of one head each, blocks
// of 64 keys pass by. While a warpgroup weighs the scores of one block, its tensor cores multiply the values of the block
// before it, and those of the other warpgroup go on.
#include "attention.cuh"
#include "warpgroup.cuh"

using namespace pd;

namespace {

constexpr uint32_t THREADS = 256;

// Other devices never launch these kernels.
#ifdef PD_HAS_WARPGROUPS

constexpr uint32_t QUERIES = 128;
constexpr uint32_t WARPGROUP = 128, WARPGROUP_QUERIES = 64, WARP_QUERIES = 16;
constexpr uint32_t STAGES = 3;

// Copies of keys and values into rings of blocks. A thread copies the same word of every ROW_STEPth row.
template <int DIM>
struct Pipeline {
  static constexpr uint32_t WORDS = DIM / 8, ROW_STEP = THREADS / WORDS, ROWS = BLOCK / ROW_STEP;
  static constexpr uint32_t BLOCK_LEN = BLOCK * DIM, PLANE_LEN = BLOCK * SWIZZLE_COLUMNS;

  Pages table;
  bf16* ring;  // [STAGES][K, V][DIM / 64][BLOCK][64], swizzled
  uint32_t kv_head, last_key;
  uint32_t row, word;
  // Of the block whose keys were copied last, and pages of the next one.
  const bf16* keys[ROWS];
  uint32_t pages[ROWS];

  DEVICE bf16* keys_of(uint32_t block) const { return ring + block % STAGES * 2 * BLOCK_LEN; }
  DEVICE bf16* values_of(uint32_t block) const { return keys_of(block) + BLOCK_LEN; }

  DEVICE void find_pages(uint32_t block) {
#pragma unroll
    for (uint32_t i = 0; i < ROWS; ++i) {
      uint32_t key = block * BLOCK + row + i * ROW_STEP;
      pages[i] = key <= last_key ? table.page_of(key) : NONE;
    }
  }

  // `from` is not read unless it is wanted.
  DEVICE void copy_row(bf16* to, uint32_t i, const bf16* from, bool wanted) {
    uint32_t plane = word / 8, at = swizzled_128(row + i * ROW_STEP, word % 8);
    const void* base = table.args.kv.base;
    copy_async(to + plane * PLANE_LEN + at, wanted ? from : base, wanted);
  }

  // Keys of `block`, whose pages are known.
  DEVICE void copy_keys(uint32_t block) {
    bf16* to = keys_of(block);
#pragma unroll
    for (uint32_t i = 0; i < ROWS; ++i) {
      uint32_t key = block * BLOCK + row + i * ROW_STEP;
      bool wanted = pages[i] != NONE;
      keys[i] = wanted ? table.key_in<bf16>(pages[i], kv_head, key) + word * 8 : nullptr;
      copy_row(to, i, keys[i], wanted);
    }
    find_pages(block + 1);
  }

  // Values of `block`, whose keys were copied last.
  DEVICE void copy_values(uint32_t block) {
    bf16* to = values_of(block);
#pragma unroll
    for (uint32_t i = 0; i < ROWS; ++i) {
      bool wanted = keys[i] != nullptr;
      copy_row(to, i, keys[i] + (wanted ? table.args.kv.kv_stride : 0), wanted);
    }
  }
};

// One row's largest score so far and this lane's part of the sum of its weights, for rows g and g + 8.
struct Weighing {
  float largest[2];
  float sum[2];
};

// Scores become weights; `keep` is what weights so far are worth now.
template <int LEN>
DEVICE void weigh(float (&scores)[LEN], Weighing& so_far, float (&keep)[2], float scale_log2) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = so_far.largest[half];
#pragma unroll
    for (int i = 0; i < LEN; i += 4) most = fmaxf(most, fmaxf(scores[i + 2 * half], scores[i + 2 * half + 1]));
    most = warp_max<4>(most);
    keep[half] = exp2_fast((so_far.largest[half] - most) * scale_log2);
    so_far.largest[half] = most;
    float offset = most * scale_log2, added = 0.0f;
#pragma unroll
    for (int i = 0; i < LEN; i += 4) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = scores[i + 2 * half + e];
        score = exp2_fast(score * scale_log2 - offset);
        added += score;
      }
    }
    so_far.sum[half] = so_far.sum[half] * keep[half] + added;
  }
}

template <int DIM>
DEVICE void attend(const AttnArgs& args) {
  constexpr int STEPS = DIM / 16, KEY_STEPS = BLOCK / 16, SCORES = BLOCK / 2, OUTS = DIM / 2;
  SHARED(bf16, shared);
  TilePlace place;
  // The last tiles see most keys.
  if (!find_tile<QUERIES>(args.batch, gridDim.y - 1 - blockIdx.y, place)) return;
  uint32_t q_head = blockIdx.x, kv_head = q_head / (args.num_q_heads / args.kv.num_kv_heads);
  uint32_t lane = lane_id(), g = lane / 4, t = lane % 4;
  uint32_t last_key = place.position + place.rows - 1, blocks = last_key / BLOCK + 1;

  using Pipe = Pipeline<DIM>;
  Pipe pipe{Pages(args, place.seq), swizzle_aligned(shared),      kv_head,
            last_key,               threadIdx.x / Pipe::WORDS, threadIdx.x % Pipe::WORDS};
  // Group i of copies: keys of block i, values of the one before it.
  auto copy = [&](uint32_t i) {
    if (i > 0 && i - 1 < blocks) pipe.copy_values(i - 1);
    if (i < blocks) pipe.copy_keys(i);
    commit_copies();
  };
  pipe.find_pages(0);
  for (uint32_t i = 0; i < STAGES; ++i) copy(i);

  // Rows of this warp: g and g + 8 from `row` on.
  uint32_t first = threadIdx.x / WARPGROUP * WARPGROUP_QUERIES, row = warp_id() * WARP_QUERIES;
  // Blocks that a query of this warpgroup sees; none where it has no query.
  uint32_t last_row = min_of(first + WARPGROUP_QUERIES, place.rows) - 1;
  uint32_t mine = first < place.rows ? (place.position + last_row) / BLOCK + 1 : 0;
  uint32_t q[STEPS][4] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t at = row + g + 8 * half;
    if (at >= place.rows) continue;
    const bf16* from = static_cast<const bf16*>(args.q) + (place.first + at) * args.q_row_stride + uint64_t(q_head) * DIM;
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      q[s][half] = *reinterpret_cast<const uint32_t*>(from + 16 * s + 2 * t);
      q[s][2 + half] = *reinterpret_cast<const uint32_t*>(from + 16 * s + 8 + 2 * t);
    }
  }

  float scores[SCORES], out[OUTS] = {}, keep[2];
  uint32_t weights[KEY_STEPS][4];
  Weighing so_far{{NO_SCORE, NO_SCORE}, {0.0f, 0.0f}};
  auto multiply_keys = [&](uint32_t block) {
    const bf16* keys = pipe.keys_of(block);
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      SharedMatrix matrix{keys + s / 4 * Pipe::PLANE_LEN + s % 4 * 16, 16};
      multiply_warpgroup<false>(scores, q[s], matrix, s > 0);
    }
    commit_products();
  };
  auto multiply_values = [&](uint32_t block) {
    const bf16* values = pipe.values_of(block);
#pragma unroll
    for (int s = 0; s < KEY_STEPS; ++s) {
      SharedMatrix matrix{values + 16 * s * SWIZZLE_COLUMNS, 2 * Pipe::PLANE_LEN};
      multiply_warpgroup<true>(out, weights[s], matrix, true);
    }
    commit_products();
  };
  auto weigh_block = [&](uint32_t block) {
    if (block * BLOCK + BLOCK - 1 > place.position + row) {
#pragma unroll
      for (int i = 0; i < SCORES; ++i) {
        uint32_t key = block * BLOCK + i / 4 * 8 + 2 * t + i % 2, seen = place.position + row + g + i % 4 / 2 * 8;
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
  // The next group of copies is there for all, and the stage before it is free for the one after.
  auto advance = [&](uint32_t i) {
    wait_copies<STAGES - 2>();
    publish_to_products();
    __syncthreads();
    copy(i + STAGES);
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
    advance(block);
    if (block + 1 < mine) {
      begin_products();
      multiply_keys(block + 1);
      multiply_values(block);
      wait_products<1>(scores);
      weigh_block(block + 1);
      wait_products<0>(out);
#pragma unroll
      for (int i = 0; i < OUTS; ++i) out[i] *= keep[i % 4 / 2];
      pack_weights();
    } else if (block + 1 == mine) {
      begin_products();
      multiply_values(block);
      wait_products<0>(out);
    }
  }
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

// Grid: query heads, tiles. Shared memory: 2 · STAGES · BLOCK · DIM elements, and SWIZZLE_ALIGN bytes.
KERNEL(pd_attend_hopper_64, AttnArgs, THREADS) { attend<64>(args); }
KERNEL(pd_attend_hopper_128, AttnArgs, THREADS) { attend<128>(args); }
