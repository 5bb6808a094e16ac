// The first half of sampling: penalties, bias and masks on the logits, and what a split of a row comes to: its likeliest
// token, its sum of exponentials and, where the row wants ranks, a list of its likeliest tokens.
//
// The tokens of a split are every so many groups of 512: frequent tokens, whose ids lie close, are on all lists.
#include "sample.cuh"

using namespace pd;
using namespace pd::sampling;

namespace {

struct Shared {
  Reduction reduction;
  uint32_t listed;
};

// The `i`th token of this thread.
DEVICE uint32_t own_id(uint32_t i) { return (i * gridDim.x + blockIdx.x) * THREADS + threadIdx.x; }
DEVICE bool is_own(uint32_t token, uint32_t vocab) {
  return token < vocab && token / THREADS % gridDim.x == blockIdx.x;
}

// On the block's own tokens, whose logits no other block touches.
DEVICE void penalise(const SampleArgs& args, const SamplingRow& row, float* logits) {
  uint32_t end = min_of(row.counts_end, args.num_token_counts);
  // A token occurs once per row.
  for (uint32_t i = row.counts_begin + threadIdx.x; i < end; i += THREADS) {
    TokenCount seen = args.token_counts[i];
    if (!is_own(seen.token, args.vocab)) continue;
    float logit = logits[seen.token];
    logit = logit > 0.0f ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    if (seen.output_count > 0) {
      logit -= row.presence_penalty + row.frequency_penalty * float(seen.output_count);
    }
    logits[seen.token] = logit;
  }
  __syncthreads();
  end = min_of(row.bias_end, args.num_logit_bias);
  for (uint32_t i = row.bias_begin + threadIdx.x; i < end; i += THREADS) {
    uint32_t token = args.logit_bias[i].token;
    if (!is_own(token, args.vocab)) continue;
    // The first entry of a token adds all of its, in their order.
    bool is_first = true;
    for (uint32_t j = row.bias_begin; j < i; ++j) is_first = is_first && args.logit_bias[j].token != token;
    if (!is_first) continue;
    float logit = logits[token];
    for (uint32_t j = i; j < end; ++j) {
      if (args.logit_bias[j].token == token) logit += args.logit_bias[j].bias;
    }
    logits[token] = logit;
  }
  __syncthreads();
}

// On the thread's own tokens.
DEVICE void ban(const SampleArgs& args, const SamplingRow& row, float* logits) {
  // A mask that is not there allows nothing.
  bool is_there = row.mask < args.num_masks;
  const uint32_t* mask = args.masks + uint64_t(is_there ? row.mask : 0) * ((args.vocab + 31) / 32);
#pragma unroll
  for (uint32_t i = 0; i < PER_THREAD; ++i) {
    uint32_t id = own_id(i);
    if (id >= args.vocab) continue;
    if (!is_there || !(mask[id / 32] >> id % 32 & 1)) logits[id] = bits_to_float(0xff800000u);
  }
}

// Lists every finite logit from a cut on, about as many as there are places and not more.
DEVICE void list(const SampleArgs& args, const float (&own)[PER_THREAD], Ranked own_best, SamplePartial& partial,
                 Shared& shared) {
  uint32_t places = LISTED / gridDim.x;
  // The cut is a rank of the threads' largest logits: hardly more logits than that rank reach it.
  uint32_t wanted = min_of(places * 3 / 4, THREADS / 2), cut = 0;
  for (uint32_t bit = 1u << 31; bit > 0; bit /= 2) {
    if (block_count(bits_of(own_best) >= (cut | bit)) >= wanted) cut |= bit;
  }
  cut = max_of(cut, FINITE);
  Ranked* to = args.listed + uint64_t(blockIdx.y) * LISTED + blockIdx.x * places;
  // Where many are equal to the cut, those above it.
  for (uint32_t cut_max = cut + 1; cut <= cut_max && partial.cut == NONE; ++cut) {
    __syncthreads();
    if (threadIdx.x == 0) shared.listed = 0;
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < PER_THREAD; ++i) {
      Ranked ranked = rank(own[i], own_id(i));
      if (bits_of(ranked) < cut) continue;
      uint32_t place = atomic_add(&shared.listed, 1);
      if (place < places) to[place] = ranked;
    }
    __syncthreads();
    if (shared.listed > places) continue;
    partial.cut = cut;
    partial.listed = shared.listed;
  }
}

}  // namespace

// Grid: splits, rows. Shared memory: a `Shared`.
KERNEL(pd_sample_partials, SampleArgs, THREADS) {
  SHARED(Shared, shared);
  const SamplingRow& row = args.rows[blockIdx.y];
  float* logits = args.logits + uint64_t(blockIdx.y) * args.vocab;
  penalise(args, row, logits);
  if (row.mask != NONE) ban(args, row, logits);

  float own[PER_THREAD];
#pragma unroll
  for (uint32_t i = 0; i < PER_THREAD; ++i) own[i] = own_id(i) < args.vocab ? logits[own_id(i)] : no_number();
  Ranked own_best = 0;
#pragma unroll
  for (uint32_t i = 0; i < PER_THREAD; ++i) own_best = max_of(own_best, rank(own[i], own_id(i)));
  Ranked best = block_max(own_best, shared->reduction);
  float largest = logit_of(best), sum = 0.0f;
#pragma unroll
  for (uint32_t i = 0; i < PER_THREAD; ++i) {
    float weight = exp2_fast((own[i] - largest) * LOG2_E);
    if (weight == weight) sum += weight;
  }
  SamplePartial partial{best, 0, block_sum(sum, shared->reduction), NONE, 0, 0};
  if (wants_list(args, row)) list(args, own, own_best, partial, *shared);
  if (threadIdx.x == 0) args.partials[blockIdx.y * gridDim.x + blockIdx.x] = partial;
}
