// What the kernels of attention share: where keys lie in the paged pool, and which queries a tile holds.
#pragma once
#include "args.cuh"

namespace pd {

constexpr float NO_SCORE = -INFINITY;

// Keys that blocks of the fold hold; they stand at absolute positions.
constexpr uint32_t BLOCK = 64;

// Where the keys of one sequence lie.
struct Pages {
  const AttnArgs& args;
  uint32_t seq;
  uint32_t shift;  // a page's keys as a power of two; NONE where they are no such number

  DEVICE Pages(const AttnArgs& args, uint32_t seq) : args(args), seq(seq) {
    uint32_t size = args.kv.page_size;
    shift = (size & (size - 1)) == 0 ? log2_of(size) : NONE;
  }

  // NONE with a fault reported where the table names a page that does not exist.
  DEVICE uint32_t page_of(uint32_t key) const {
    uint32_t index = shift == NONE ? key / args.kv.page_size : key >> shift;
    uint32_t page = args.batch.page_table[uint64_t(seq) * args.batch.page_table_stride + index];
    if (page < args.kv.num_pages) return page;
    report_fault(args.fault, OP_ATTN_PAGED, FAULT_PAGE, page, args.kv.num_pages);
    return NONE;
  }

  // First element of a head's key in its page; the value is `kv_stride` on.
  template <typename Kv>
  DEVICE const Kv* key_in(uint32_t page, uint32_t kv_head, uint32_t key) const {
    const KvLayer& kv = args.kv;
    uint32_t slot = shift == NONE ? key % kv.page_size : key & ((1u << shift) - 1);
    return static_cast<const Kv*>(kv.base) + page * kv.page_stride + kv_head * kv.head_stride + slot * kv.slot_stride;
  }
  // The same of a key whose page is not known yet, or null.
  template <typename Kv>
  DEVICE const Kv* key_at(uint32_t kv_head, uint32_t key) const {
    uint32_t page = page_of(key);
    return page == NONE ? nullptr : key_in<Kv>(page, kv_head, key);
  }
};

struct TilePlace {
  uint32_t seq;
  uint32_t first;  // row of the batch
  uint32_t rows;
  uint32_t position;  // of the first query
};

// Tiles of QUERIES are numbered over the sequences; false beyond the last.
template <uint32_t QUERIES>
DEVICE bool find_tile(const Batch& batch, uint32_t tile, TilePlace& place) {
  for (uint32_t seq = 0; seq < batch.num_seqs; ++seq) {
    uint32_t begin = batch.q_indptr[seq], len = batch.q_indptr[seq + 1] - begin;
    uint32_t tiles = ceil_div(len, QUERIES);
    if (tile < tiles) {
      uint32_t within = tile * QUERIES;
      place.seq = seq;
      place.first = begin + within;
      place.rows = min_of(len - within, QUERIES);
      place.position = batch.kv_lens[seq] - len + within;
      return batch.kv_lens[seq] >= len;
    }
    tile -= tiles;
  }
  return false;
}

}  // namespace pd
