// Attention over latents on tensor cores: a tile has ROWS queries by heads of one sequence, heads of a query side by side,
// since all read the same latents; blocks of KEYS latents pass by, as keys and as values. While the scores of one block are
// made, the values of the block before it are multiplied.
#include "attn_latent_tile.cuh"

using namespace pd;
using namespace pd::latents;

namespace {

// Groups of threads that take the splits of a row in turn.
constexpr uint32_t FOLD_THREADS = 512, FOLD_GROUPS = 4;

// What a block of threads shares.
template <uint32_t ROWS, uint32_t STAGES>
struct LatentShared {
  bf16 queries[ROWS][ROW_STRIDE];
  bf16 ring[STAGES][KEYS][ROW_STRIDE];
  bf16 weights[ROWS][WEIGHTS_STRIDE];
  // Eight keys lie at a place that the row's number gives, so that rows lie in different banks.
  float scores[PARTS][ROWS][KEYS];
  float keep[ROWS];  // what values so far are worth now
  uint32_t seen[ROWS];

  DEVICE static uint32_t place(uint32_t row, uint32_t keys8, uint32_t t) { return (keys8 ^ row % 4) * 8 + 2 * t; }
};

// Queries of the tile, zeros where there are none, and how many keys each sees.
template <uint32_t ROWS, uint32_t STAGES>
DEVICE void copy_queries(LatentShared<ROWS, STAGES>& shared, const AttnArgs& args, const LatentRows& tile) {
  uint32_t dim = args.kv.head_dim, words = ceil_div(dim, 16) * 2, heads = args.num_q_heads;
  const bf16* q = static_cast<const bf16*>(args.q);
  for (uint32_t row = warp_id(); row < ROWS; row += TILE_WARPS) {
    bool is_row = row < tile.rows;
    uint32_t at = tile.first + (is_row ? row : 0), token = at / heads;
    const bf16* from = q + token * args.q_row_stride + uint64_t(at % heads) * dim;
    if (lane_id() == 0) shared.seen[row] = is_row ? seen_by(tile, token) : 0;
    for (uint32_t word = lane_id(); word < words; word += WARP) {
      bool wanted = is_row && word * 8 < dim;
      copy_async(&shared.queries[row][word * 8], wanted ? from + word * 8 : from, wanted);
    }
  }
}

// This warp's part of the products of a block's keys.
template <uint32_t ROWS, uint32_t STAGES>
DEVICE void multiply_keys(LatentShared<ROWS, STAGES>& shared, const bf16* keys, uint32_t steps) {
  // Of two groups of warps, each has half of the rows, or of the keys.
  constexpr bool HALVES_ROWS = ROWS > 16;
  constexpr uint32_t MY_ROWS = HALVES_ROWS ? ROWS / 2 : ROWS, MY_KEYS = HALVES_ROWS ? KEYS : KEYS / 2;
  uint32_t part = warp_id() % PARTS, half = warp_id() / PARTS, lane = lane_id(), g = lane / 4, t = lane % 4;
  uint32_t row0 = HALVES_ROWS ? half * MY_ROWS : 0, key0 = HALVES_ROWS ? 0 : half * MY_KEYS;
  const bf16* left = &shared.queries[row0 + lane % 16][lane / 16 * 8];
  const bf16* right = keys + (key0 + lane / 16 * 8 + lane % 8) * ROW_STRIDE + lane / 8 % 2 * 8;
  float scores[MY_ROWS / 16][MY_KEYS / 8][4] = {};
#pragma unroll 3
  for (uint32_t s = part; s < steps; s += PARTS) {
    uint32_t a[MY_ROWS / 16][4];
#pragma unroll
    for (uint32_t r = 0; r < MY_ROWS / 16; ++r) load_matrices(a[r], left + r * 16 * ROW_STRIDE + s * 16);
#pragma unroll
    for (uint32_t j = 0; j < MY_KEYS / 16; ++j) {
      // Matrices: dims 0..8 and 8..16 of keys 0..8, then of keys 8..16.
      uint32_t k[4];
      load_matrices(k, right + j * 16 * ROW_STRIDE + s * 16);
      uint32_t first[2] = {k[0], k[1]}, second[2] = {k[2], k[3]};
#pragma unroll
      for (uint32_t r = 0; r < MY_ROWS / 16; ++r) {
        mma_16x8x16(scores[r][2 * j], a[r], first);
        mma_16x8x16(scores[r][2 * j + 1], a[r], second);
      }
    }
  }
#pragma unroll
  for (uint32_t r = 0; r < MY_ROWS / 16; ++r) {
#pragma unroll
    for (uint32_t j = 0; j < MY_KEYS / 8; ++j) {
#pragma unroll
      for (uint32_t upper = 0; upper < 2; ++upper) {
        uint32_t row = row0 + 16 * r + 8 * upper + g;
        float* to = shared.scores[part][row] + shared.place(row, key0 / 8 + j, t);
        *reinterpret_cast<Pair*>(to) = Pair{scores[r][j][2 * upper], scores[r][j][2 * upper + 1]};
      }
    }
  }
}

// Of one row: the largest score so far, and this lane's part of the sum of its weights.
struct RowWeighing {
  float largest;
  float sum;
};

// Scores of a block become weights. A warp has ROWS / TILE_WARPS rows.
template <uint32_t ROWS, uint32_t STAGES>
DEVICE void weigh(LatentShared<ROWS, STAGES>& shared, RowWeighing& so_far, uint32_t block, float scale_log2) {
  constexpr uint32_t LANES = TILE_THREADS / ROWS, PAIRS = KEYS / 2 / LANES;
  uint32_t row = threadIdx.x / LANES, lane = threadIdx.x % LANES, seen = shared.seen[row];
  float scores[PAIRS][2], most = so_far.largest;
#pragma unroll
  for (uint32_t i = 0; i < PAIRS; ++i) {
    uint32_t pair = i * LANES + lane, at = shared.place(row, pair / 4, pair % 4);
    float a = 0.0f, b = 0.0f;
#pragma unroll
    for (uint32_t part = 0; part < PARTS; ++part) {
      Pair added = *reinterpret_cast<const Pair*>(shared.scores[part][row] + at);
      a += added.a;
      b += added.b;
    }
    uint32_t key = block * KEYS + 2 * pair;
    scores[i][0] = key < seen ? a * scale_log2 : NO_SCORE;
    scores[i][1] = key + 1 < seen ? b * scale_log2 : NO_SCORE;
    most = fmaxf(most, fmaxf(scores[i][0], scores[i][1]));
  }
  most = warp_max<LANES>(most);
  float keep = weight_of(so_far.largest, most), added = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < PAIRS; ++i) {
    float a = weight_of(scores[i][0], most), b = weight_of(scores[i][1], most);
    added += a + b;
    bf16* to = &shared.weights[row][2 * (i * LANES + lane)];
    *reinterpret_cast<uint32_t*>(to) = pack_bf16(a, b);
  }
  so_far.largest = most;
  so_far.sum = so_far.sum * keep + added;
  if (lane == 0) shared.keep[row] = keep;
}

// Values of all rows that this warp makes: VALUES of them.
template <uint32_t ROWS>
struct LatentValues {
  static constexpr uint32_t VALUES = TILE_VALUE_DIM / TILE_WARPS, ROW_TILES = ROWS / 16;

  float out[ROW_TILES][VALUES / 8][4] = {};

  // Each result times what its row has in `factors`.
  DEVICE void scale(const float* factors) {
#pragma unroll
    for (uint32_t r = 0; r < ROW_TILES; ++r) {
      float low = factors[16 * r + lane_id() / 4], high = factors[16 * r + 8 + lane_id() / 4];
      // Mostly a block has no larger score than those before it.
      if (low == 1.0f && high == 1.0f) continue;
#pragma unroll
      for (uint32_t i = 0; i < VALUES / 8; ++i) {
#pragma unroll
        for (uint32_t e = 0; e < 4; ++e) out[r][i][e] *= e < 2 ? low : high;
      }
    }
  }

  // A block's weights times its latents.
  DEVICE void add(const bf16* weights, const bf16* latents) {
    uint32_t lane = lane_id();
#pragma unroll
    for (uint32_t j = 0; j < KEYS / 16; ++j) {
      uint32_t w[ROW_TILES][4];
#pragma unroll
      for (uint32_t r = 0; r < ROW_TILES; ++r) {
        load_matrices(w[r], weights + (16 * r + lane % 16) * WEIGHTS_STRIDE + 16 * j + lane / 16 * 8);
      }
      const bf16* from = latents + (16 * j + lane % 16) * ROW_STRIDE + warp_id() * VALUES + lane / 16 * 8;
#pragma unroll
      for (uint32_t i = 0; i < VALUES / 16; ++i) {
        // Matrices: keys 0..8 and 8..16 of dims 0..8, then of dims 8..16.
        uint32_t v[4];
        load_matrices_transposed(v, from + 16 * i);
        uint32_t first[2] = {v[0], v[1]}, second[2] = {v[2], v[3]};
#pragma unroll
        for (uint32_t r = 0; r < ROW_TILES; ++r) {
          mma_16x8x16(out[r][2 * i], w[r], first);
          mma_16x8x16(out[r][2 * i + 1], w[r], second);
        }
      }
    }
  }

  // put(row, value, first, second) for each two neighbours of this lane.
  template <typename Put>
  DEVICE void each(uint32_t rows, uint32_t value_dim, Put put) const {
    uint32_t g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
    for (uint32_t r = 0; r < ROW_TILES; ++r) {
#pragma unroll
      for (uint32_t i = 0; i < VALUES / 8; ++i) {
#pragma unroll
        for (uint32_t upper = 0; upper < 2; ++upper) {
          uint32_t row = 16 * r + 8 * upper + g, value = warp_id() * VALUES + 8 * i + 2 * t;
          if (row < rows && value < value_dim) put(row, value, out[r][i][2 * upper], out[r][i][2 * upper + 1]);
        }
      }
    }
  }
};

using FewShared = LatentShared<FEW_ROWS, FEW_STAGES>;
using ManyShared = LatentShared<MANY_ROWS, MANY_STAGES>;

template <uint32_t ROWS, uint32_t STAGES>
DEVICE void attend_latent_tile(const AttnArgs& args) {
  constexpr uint32_t LANES = TILE_THREADS / ROWS;
  using Shared = LatentShared<ROWS, STAGES>;
  SHARED(Shared, all);
  Shared& shared = *all;
  LatentRows tile;
  // The last tiles of a prompt see most keys.
  if (!find_rows<ROWS>(args, gridDim.x - 1 - blockIdx.x, tile)) return await_kernels_before();
  uint32_t seen = seen_by(tile, (tile.first + tile.rows - 1) / args.num_q_heads);
  uint32_t per_split = keys_per_split(args, tile.kv_len), begin = blockIdx.y * per_split;
  bool is_split = tile.kv_len > per_split;
  // A tile that sees no key has zeros.
  if (begin >= seen && (is_split || blockIdx.y > 0)) return await_kernels_before();
  uint32_t end = min_of(begin + per_split, seen), block = begin / KEYS, blocks = ceil_div(end, KEYS);

  LatentRing<STAGES> ring(args, tile.seq, &shared.ring[0][0][0], block, end);
  // What the host wrote is there before the kernels that make queries and latents have ended.
  await_kernels_before();
  copy_queries(shared, args, tile);
  for (uint32_t i = 0; i + 1 < STAGES; ++i) ring.copy(block + i);
  uint32_t steps = ceil_div(args.kv.head_dim, 16);
  bool has_values = warp_id() * LatentValues<ROWS>::VALUES < args.value_dim;
  RowWeighing so_far{NO_SCORE, 0.0f};
  LatentValues<ROWS> values;
  wait_copies<STAGES - 2>();
  __syncthreads();
  if (block < blocks) {
    multiply_keys(shared, ring.stage(block), steps);
    __syncthreads();
    weigh(shared, so_far, block, args.scale_log2);
  }
  for (; block < blocks; ++block) {
    // The next block is there for all, and the stage of the one before this is free.
    wait_copies<STAGES - 3>();
    __syncthreads();
    ring.copy(block + STAGES - 1);
    if (block + 1 < blocks) multiply_keys(shared, ring.stage(block + 1), steps);
    if (has_values) {
      values.scale(shared.keep);
      values.add(&shared.weights[0][0], ring.stage(block));
    }
    __syncthreads();
    if (block + 1 < blocks) weigh(shared, so_far, block + 1, args.scale_log2);
  }
  wait_copies<0>();

  float sum = warp_sum<LANES>(so_far.sum);
  uint32_t row = threadIdx.x / LANES, value_dim = args.value_dim;
  if (is_split) {
    float* partials = args.partials + (uint64_t(tile.first) * args.splits + blockIdx.y) * (value_dim + 2);
    uint64_t row_len = uint64_t(args.splits) * (value_dim + 2);
    if (threadIdx.x % LANES == 0 && row < tile.rows) {
      *reinterpret_cast<Pair*>(partials + row * row_len) = Pair{so_far.largest, sum};
    }
    values.each(tile.rows, value_dim, [&](uint32_t at, uint32_t value, float a, float b) {
      *reinterpret_cast<Pair*>(partials + at * row_len + 2 + value) = Pair{a, b};
    });
    return;
  }
  if (threadIdx.x % LANES == 0) shared.keep[row] = sum > 0.0f ? 1.0f / sum : 0.0f;
  __syncthreads();
  values.scale(shared.keep);
  bf16* out = static_cast<bf16*>(args.out) + uint64_t(tile.first) * value_dim;
  values.each(tile.rows, value_dim, [&](uint32_t at, uint32_t value, float a, float b) {
    *reinterpret_cast<uint32_t*>(out + at * value_dim + value) = pack_bf16(a, b);
  });
}

// What the splits of a row have left, added up by groups of threads and then over these, in one order.
DEVICE void fold_latent_splits(const AttnArgs& args) {
  constexpr uint32_t LANES = FOLD_THREADS / FOLD_GROUPS, PAIRS = TILE_VALUE_DIM / 2 / LANES;
  SHARED(float, sums);  // [FOLD_GROUPS][TILE_VALUE_DIM]
  uint32_t row = blockIdx.x, value_dim = args.value_dim, state_len = value_dim + 2;
  Query query = find_query(args.batch, row / args.num_q_heads);
  uint32_t kv_len = args.batch.kv_lens[query.seq], per_split = keys_per_split(args, kv_len);
  if (kv_len <= per_split) return;
  uint32_t splits = ceil_div(query.num_keys, per_split);
  const float* partials = args.partials + uint64_t(row) * args.splits * state_len;
  float most = NO_SCORE, sum = 0.0f;
  for (uint32_t s = lane_id(); s < splits; s += WARP) most = fmaxf(most, partials[s * state_len]);
  most = warp_max(most);
  for (uint32_t s = lane_id(); s < splits; s += WARP) {
    sum += weight_of(partials[s * state_len], most) * partials[s * state_len + 1];
  }
  sum = warp_sum(sum);

  uint32_t group = threadIdx.x / LANES, first = threadIdx.x % LANES * 2;
  float values[PAIRS][2] = {};
#pragma unroll 8
  for (uint32_t s = group; s < splits; s += FOLD_GROUPS) {
    const float* partial = partials + s * state_len;
    float worth = weight_of(partial[0], most);
#pragma unroll
    for (uint32_t i = 0; i < PAIRS; ++i) {
      uint32_t value = first + i * 2 * LANES;
      if (value >= value_dim) continue;
      Pair pair = *reinterpret_cast<const Pair*>(partial + 2 + value);
      values[i][0] += worth * pair.a;
      values[i][1] += worth * pair.b;
    }
  }
#pragma unroll
  for (uint32_t i = 0; i < PAIRS; ++i) {
    float* to = sums + group * TILE_VALUE_DIM + first + i * 2 * LANES;
    *reinterpret_cast<Pair*>(to) = Pair{values[i][0], values[i][1]};
  }
  __syncthreads();
  bf16* out = static_cast<bf16*>(args.out) + uint64_t(row) * value_dim;
  for (uint32_t i = threadIdx.x; i < value_dim; i += FOLD_THREADS) {
    float value = 0.0f;
#pragma unroll
    for (uint32_t g = 0; g < FOLD_GROUPS; ++g) value += sums[g * TILE_VALUE_DIM + i];
    out[i] = from_float<bf16>(sum > 0.0f ? value / sum : 0.0f);
  }
}

}  // namespace

// Grid: tiles, splits. Shared memory: `LatentShared`.
KERNEL_EARLY(pd_attend_latent_tile_16, AttnArgs, TILE_THREADS) { attend_latent_tile<FEW_ROWS, FEW_STAGES>(args); }
KERNEL_EARLY(pd_attend_latent_tile_64, AttnArgs, TILE_THREADS) { attend_latent_tile<MANY_ROWS, MANY_STAGES>(args); }
// Grid: tokens · query heads. Shared memory: FOLD_GROUPS · TILE_VALUE_DIM floats.
KERNEL(pd_fold_latent_splits, AttnArgs, FOLD_THREADS) { fold_latent_splits(args); }
