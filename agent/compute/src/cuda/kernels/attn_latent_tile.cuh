// Tiles of attention over latents: which rows each has, and how latents come to it.
#pragma once
#include "attn_paged.cuh"

namespace pd::latents {

constexpr uint32_t KEYS = 32, TILE_WARPS = 8, TILE_THREADS = TILE_WARPS * WARP;
// A tile of one query alone passes memory by, so more blocks of latents are on their way; one of many rows has no room.
constexpr uint32_t FEW_ROWS = 16, FEW_STAGES = 5, MANY_ROWS = 64, MANY_STAGES = 3;
// Most elements of a latent with its key, and of a latent: of a smaller one the rest is left out.
constexpr uint32_t TILE_DIM = 576, TILE_VALUE_DIM = 512;
// Of latents and queries in shared memory: rows that are read together lie in different banks.
constexpr uint32_t ROW_STRIDE = TILE_DIM + 8, WEIGHTS_STRIDE = KEYS + 8;
// Elements of a product of a query and a key are dealt to as many warps.
constexpr uint32_t PARTS = 4;
// Keys of a split at least: what it leaves behind is as large as 32 keys.
constexpr uint32_t SPLIT_KEYS = 64;

struct alignas(8) Pair {
  float a, b;
};

// Rows of a tile, which count heads of queries over the whole batch.
struct LatentRows {
  uint32_t seq;
  uint32_t first;
  uint32_t rows;
  uint32_t kv_len;
  uint32_t end;  // the sequence's tokens end before it
};

// Keys that a token of the sequence sees.
DEVICE uint32_t seen_by(const LatentRows& tile, uint32_t token) {
  uint32_t after = tile.end - token;
  return tile.kv_len >= after ? tile.kv_len - after + 1 : 0;
}

// Keys of each split: of all rows of a sequence the same.
DEVICE uint32_t keys_per_split(const AttnArgs& args, uint32_t kv_len) {
  return max_of(ceil_div(ceil_div(kv_len, args.splits), SPLIT_KEYS), 1u) * SPLIT_KEYS;
}

// False beyond the last tile.
template <uint32_t ROWS>
DEVICE bool find_rows(const AttnArgs& args, uint32_t tile, LatentRows& found) {
  const Batch& batch = args.batch;
  uint32_t heads = args.num_q_heads;
  auto take = [&](uint32_t seq, uint32_t first, uint32_t rows) {
    found = LatentRows{seq, first, rows, batch.kv_lens[seq], batch.q_indptr[seq + 1]};
  };
  // Mostly one query per sequence: a tile never has more than one.
  if (batch.num_tokens == batch.num_seqs) {
    uint32_t tiles = ceil_div(heads, ROWS), token = tile / tiles, head = tile % tiles * ROWS;
    if (token >= batch.num_tokens) return false;
    take(find_query(batch, token).seq, token * heads + head, min_of(heads - head, ROWS));
    return true;
  }
  for (uint32_t seq = 0; seq < batch.num_seqs; ++seq) {
    uint32_t begin = batch.q_indptr[seq] * heads, len = batch.q_indptr[seq + 1] * heads - begin;
    uint32_t tiles = ceil_div(len, ROWS);
    if (tile < tiles) {
      take(seq, begin + tile * ROWS, min_of(len - tile * ROWS, ROWS));
      return true;
    }
    tile -= tiles;
  }
  return false;
}

// A ring of blocks of latents. Eight threads copy a latent.
template <uint32_t STAGES>
struct LatentRing {
  static constexpr uint32_t THREADS_PER_KEY = TILE_THREADS / KEYS;

  Pages pages;
  bf16* ring;  // [STAGES][KEYS][ROW_STRIDE]
  uint32_t end;
  uint32_t words;  // of a latent, and those that are read
  uint32_t read_words;
  uint32_t row, lane;
  uint32_t page;  // of this thread's key in the block that is copied next

  DEVICE LatentRing(const AttnArgs& args, uint32_t seq, bf16* ring, uint32_t block, uint32_t end)
      : pages(args, seq),
        ring(ring),
        end(end),
        words(args.kv.head_dim / 8),
        read_words(ceil_div(words, 2) * 2),
        row(threadIdx.x / THREADS_PER_KEY),
        lane(threadIdx.x % THREADS_PER_KEY) {
    look_up(block);
  }

  DEVICE bf16* stage(uint32_t block) const { return ring + block % STAGES * (KEYS * ROW_STRIDE); }

  DEVICE void look_up(uint32_t block) {
    uint32_t key = block * KEYS + row;
    page = key < end ? pages.page_of(key) : NONE;
  }

  // The block that was looked up, zeros where there are no keys; a group of copies in any case. Looks up the next one.
  DEVICE void copy(uint32_t block) {
    if (block * KEYS < end) {
      bool is_key = page != NONE;
      const bf16* from = static_cast<const bf16*>(pages.args.kv.base);
      if (is_key) from = pages.key_in<bf16>(page, 0, block * KEYS + row);
      bf16* to = stage(block) + row * ROW_STRIDE;
#pragma unroll
      for (uint32_t i = 0; i < TILE_DIM / 8 / THREADS_PER_KEY; ++i) {
        uint32_t word = i * THREADS_PER_KEY + lane;
        bool wanted = is_key && word < words;
        if (word < read_words) copy_async(to + word * 8, wanted ? from + word * 8 : from, wanted);
      }
      look_up(block + 1);
    }
    commit_copies();
  }
};

}  // namespace pd::latents
