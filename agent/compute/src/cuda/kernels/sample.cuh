// What both kernels of sampling stand on: ranked logits, what a row wants, and reductions over a block.
#pragma once
#include "args.cuh"

namespace pd {
namespace sampling {

constexpr uint32_t THREADS = 512;
constexpr uint32_t WARPS = THREADS / WARP;
// Tokens of a split at most. They are as many on every device and for any number of rows, so a row's log-sum has the
// same bits in every batch.
constexpr uint32_t PER_THREAD = 16;
constexpr uint32_t SPLIT = THREADS * PER_THREAD;
// Places for a row's likeliest tokens, an equal share for each split.
constexpr uint32_t LISTED = 2048;

// A token as its logit's bits, ordered like the logit, above the complement of its id: the likelier is larger, of equal
// ones the first. 0 is a token whose logit is NaN.
using Ranked = uint64_t;
// Ordered bits of the lowest finite logit.
constexpr uint32_t FINITE = 0x00800000u;

DEVICE Ranked rank(float logit, uint32_t id) {
  uint32_t bits = ordered(logit);
  return bits == 0 ? 0 : uint64_t(bits) << 32 | uint32_t(~id);
}
DEVICE uint32_t bits_of(Ranked ranked) { return uint32_t(ranked >> 32); }
DEVICE float logit_of(Ranked ranked) { return unordered(bits_of(ranked)); }
DEVICE uint32_t id_of(Ranked ranked) { return ~uint32_t(ranked); }

DEVICE float no_number() { return bits_to_float(0x7fc00000u); }

DEVICE bool is_drawn(const SamplingRow& row) { return row.given == NONE && row.temperature > 0.0f && row.top_k != 1; }
// Whether all tokens are kept, but for min-p: then ranks do not matter.
DEVICE bool keeps_all(const SamplingRow& row, uint32_t vocab) {
  return (row.top_k == 0 || row.top_k >= vocab) && row.top_p >= 1.0f;
}
DEVICE bool wants_list(const SampleArgs& args, const SamplingRow& row) {
  return (is_drawn(row) && !keeps_all(row, args.vocab)) || min_of(row.top_n, args.top_n_max) > 0;
}

// Memory of reductions.
struct Reduction {
  uint64_t words[WARPS];
  float floats[WARPS];
};

DEVICE uint64_t block_max(uint64_t value, Reduction& memory) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value = max_of(value, shuffle_xor(value, mask));
  __syncthreads();
  if (lane_id() == 0) memory.words[warp_id()] = value;
  __syncthreads();
  for (uint32_t w = 0; w < WARPS; ++w) value = max_of(value, memory.words[w]);
  return value;
}

DEVICE uint64_t block_sum(uint64_t value, Reduction& memory) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  __syncthreads();
  if (lane_id() == 0) memory.words[warp_id()] = value;
  __syncthreads();
  uint64_t sum = 0;
  for (uint32_t w = 0; w < WARPS; ++w) sum += memory.words[w];
  return sum;
}

DEVICE float block_sum(float value, Reduction& memory) {
  value = warp_sum(value);
  __syncthreads();
  if (lane_id() == 0) memory.floats[warp_id()] = value;
  __syncthreads();
  float sum = 0.0f;
  for (uint32_t w = 0; w < WARPS; ++w) sum += memory.floats[w];
  return sum;
}

}  // namespace sampling
}  // namespace pd
