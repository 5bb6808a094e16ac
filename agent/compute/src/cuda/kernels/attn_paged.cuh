// What the kernels of attention share: where keys lie in the paged pool, and which queries a tile holds.
#pragma once
#include "e4m3.cuh"

namespace pd {

constexpr float NO_SCORE = -INFINITY;

// Keys that blocks of the fold hold, at least; they stand at absolute positions.
constexpr uint32_t BLOCK = 64;

// Where the keys of one sequence lie.
struct Pages {
  const AttnArgs& args;
  uint32_t first;  // of the table
  uint32_t shift;

  DEVICE Pages(const AttnArgs& args, uint32_t seq)
      : args(args), first(seq * args.batch.page_table_stride), shift(ceil_log2(args.kv.page_size)) {}

  // key / page_size. Source: Granlund and Montgomery, "Division by Invariant Integers using Multiplication", 1994.
  DEVICE uint32_t index_of(uint32_t key) const { return (mul_high(args.page_multiplier, key) + key) >> shift; }

  // As the table names it.
  DEVICE uint32_t named_page(uint32_t key) const { return args.batch.page_table[first + index_of(key)]; }

  // NONE with a fault reported where the table names a page that does not exist.
  DEVICE uint32_t page_of(uint32_t key) const {
    uint32_t page = named_page(key);
    if (page < args.kv.num_pages) return page;
    report(page);
    return NONE;
  }
  DEVICE void report(uint32_t page) const {
    report_fault(args.fault, OP_ATTN_PAGED, FAULT_PAGE, page, args.kv.num_pages);
  }

  // Elements from the pool's first key of a head to a key in its page; pages are fewer than 2^32 elements apart.
  DEVICE uint64_t offset_in(uint32_t page, uint32_t key) const {
    const KvLayer& kv = args.kv;
    uint32_t slot = key - index_of(key) * kv.page_size;
    return page * uint64_t(uint32_t(kv.page_stride)) + slot * uint32_t(kv.slot_stride);
  }

  // First element of a head's key in its page; the value is `kv_stride` on.
  template <typename Kv>
  DEVICE const Kv* key_in(uint32_t page, uint32_t kv_head, uint32_t key) const {
    return static_cast<const Kv*>(args.kv.base) + kv_head * args.kv.head_stride + offset_in(page, key);
  }
  // The same of a key whose page is not known yet, or null.
  template <typename Kv>
  DEVICE const Kv* key_at(uint32_t kv_head, uint32_t key) const {
    uint32_t page = page_of(key);
    return page == NONE ? nullptr : key_in<Kv>(page, kv_head, key);
  }
};

struct Query {
  uint32_t seq;
  // Keys that this query sees; 0 where a sequence has fewer keys than queries.
  uint32_t num_keys;
};

DEVICE Query find_query(const Batch& batch, uint32_t token) {
  uint32_t low = 0, high = batch.num_seqs;
  // Mostly there is one query per sequence.
  if (token < high && batch.q_indptr[token] == token && batch.q_indptr[token + 1] == token + 1) {
    low = token;
    high = token + 1;
  }
  while (high - low > 1) {
    uint32_t middle = (low + high) / 2;
    if (batch.q_indptr[middle] <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  uint32_t after = batch.q_indptr[low + 1] - token, kv_len = batch.kv_lens[low];
  return Query{low, kv_len >= after ? kv_len - after + 1 : 0};
}

// 2^(x − largest), 0 where there was no score.
DEVICE float weight_of(float x, float largest) { return x == NO_SCORE ? 0.0f : exp2_fast(x - largest); }

struct Folded {
  float largest, sum, value;
};

// Element `i` of head `h` over the results of a block's warps, in their order: each has its largest score, the sum of
// weights, and the weighted sum of values.
template <uint32_t WARPS, uint32_t HEADS, uint32_t STATE>
DEVICE Folded fold_warps(const float* partials, uint32_t h, uint32_t i) {
  Folded all = {NO_SCORE, 0.0f, 0.0f};
  for (uint32_t w = 0; w < WARPS; ++w) all.largest = fmaxf(all.largest, partials[(w * HEADS + h) * STATE]);
  for (uint32_t w = 0; w < WARPS; ++w) {
    const float* partial = partials + (w * HEADS + h) * STATE;
    float keep = weight_of(partial[0], all.largest);
    all.sum += keep * partial[1];
    all.value += keep * partial[2 + i];
  }
  return all;
}

// What products of queries and keys, as packs have these, are multiplied by to be scores in units of log2.
template <typename Kv>
DEVICE float key_factor(const AttnArgs& args) {
  return HAS_SCALES<Kv> ? args.scale_log2 * (args.kv.k_scale * F8_OVER_F16) : args.scale_log2;
}
// What means of values, as packs have these, are multiplied by.
template <typename Kv>
DEVICE float value_factor(float scale) {
  return HAS_SCALES<Kv> ? scale * F8_OVER_F16 : 1.0f;
}

// Kernels that are not FORMED have no window, cap, sinks or gate, and no code for them.

// First key that the query sees whose last one is `last`.
template <bool FORMED>
DEVICE uint32_t first_seen(const AttnArgs& args, uint32_t last) {
  return FORMED && last >= args.window ? last - args.window + 1 : 0;
}

// Of a product of a query and a key, in units of log2.
template <bool FORMED>
DEVICE float score_of(const AttnArgs& args, float product_log2) {
  if (!FORMED) return product_log2;
  if (args.softcap_log2 == 0.0f) return product_log2;
  return args.softcap_log2 * tanhf(product_log2 * args.softcap_inverse);
}

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
