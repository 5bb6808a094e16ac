// Sampling, a block per row, by the rules of sampling.rs: penalties and bias on the logits, log-sum-exp, one token, the
// likeliest ones.
//
// Weights are 2^((logit − largest) / temperature · log2 e), and masses their sums in whole units of 2^-40: integers, so
// a sum is the same in any order. Ranks are never sorted: the key of a weight is its bits, and what is wanted (where
// the kept ranks end, which rank a point of their mass falls on) is found digit by digit from the top, with counts and
// masses per digit; ties go by id.
#include "args.cuh"

using namespace pd;

namespace {

constexpr uint32_t THREADS = 512;
constexpr uint32_t WARPS = THREADS / 32;
constexpr float MASS_UNIT = 1099511627776.0f;  // 2^40
constexpr uint32_t DIGITS = 4, BINS = 256;

// A candidate: a logit's bits, ordered like the logit, above the complement of its id.
using Ranked = uint64_t;

struct Shared {
  uint64_t words[WARPS];
  float floats[WARPS];
  uint32_t counts[BINS];
  uint64_t masses[BINS];
  uint32_t thread_counts[THREADS];
  uint64_t thread_masses[THREADS];
  uint64_t mass;
  uint32_t key, count, chosen;
};

struct Row {
  float* logits;
  uint32_t vocab;
  float largest;
  float log2_scale;  // log2(e) / temperature
  float weight_min;
};

// Bits that order as the floats do, −0 as 0; NaN is below everything.
DEVICE uint32_t ordered(float value) {
  uint32_t bits = float_to_bits(value + 0.0f);
  if (value != value) return 0;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

DEVICE Ranked block_max(Ranked value, Shared& shared) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value = max_of(value, shuffle_xor(value, mask));
  __syncthreads();
  if (lane_id() == 0) shared.words[warp_id()] = value;
  __syncthreads();
  for (uint32_t w = 0; w < WARPS; ++w) value = max_of(value, shared.words[w]);
  return value;
}

DEVICE float block_sum(float value, Shared& shared) {
  value = warp_sum(value);
  __syncthreads();
  if (lane_id() == 0) shared.floats[warp_id()] = value;
  __syncthreads();
  float sum = 0.0f;
  for (uint32_t w = 0; w < WARPS; ++w) sum += shared.floats[w];
  return sum;
}

DEVICE uint64_t block_sum(uint64_t value, Shared& shared) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  __syncthreads();
  if (lane_id() == 0) shared.words[warp_id()] = value;
  __syncthreads();
  uint64_t sum = 0;
  for (uint32_t w = 0; w < WARPS; ++w) sum += shared.words[w];
  return sum;
}

// Largest of those below `below`, or 0.
DEVICE Ranked next_ranked(const float* logits, uint32_t vocab, Ranked below, Shared& shared) {
  Ranked best = 0;
  for (uint32_t id = threadIdx.x; id < vocab; id += THREADS) {
    uint32_t key = ordered(logits[id]);
    Ranked ranked = uint64_t(key) << 32 | uint32_t(~id);
    if (key != 0 && ranked < below) best = max_of(best, ranked);
  }
  return block_max(best, shared);
}
DEVICE uint32_t id_of(Ranked ranked) { return ~uint32_t(ranked); }

DEVICE void penalise(const SampleArgs& args, const SamplingRow& row, float* logits) {
  uint32_t end = min_of(row.counts_end, args.num_token_counts);
  // A token occurs once per row.
  for (uint32_t i = row.counts_begin + threadIdx.x; i < end; i += THREADS) {
    TokenCount seen = args.token_counts[i];
    if (seen.token >= args.vocab) continue;
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
    if (token >= args.vocab) continue;
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

// 0 for what min-p leaves out, for −∞ and for NaN.
DEVICE float eligible_weight(const Row& row, uint32_t id) {
  float weight = exp2_fast((row.logits[id] - row.largest) * row.log2_scale);
  return weight >= row.weight_min ? weight : 0.0f;
}
DEVICE uint64_t mass_of(float weight) { return uint64_t(weight * MASS_UNIT); }

// Fills the bins with the weights whose key begins as `key` does above digit `digit`.
DEVICE void fill_bins(const Row& row, uint32_t key, uint32_t digit, Shared& shared) {
  uint32_t shift = 8 * (DIGITS - 1 - digit);
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < BINS; i += THREADS) {
    shared.counts[i] = 0;
    shared.masses[i] = 0;
  }
  __syncthreads();
  for (uint32_t id = threadIdx.x; id < row.vocab; id += THREADS) {
    float weight = eligible_weight(row, id);
    uint32_t bits = float_to_bits(weight);
    if (!(weight > 0.0f) || (digit > 0 && bits >> (shift + 8) != key >> (shift + 8))) continue;
    uint32_t bin = bits >> shift & (BINS - 1);
    atomic_add(&shared.counts[bin], 1);
    atomic_add(&shared.masses[bin], mass_of(weight));
  }
  __syncthreads();
}

// Walks the ranks from the top, whole digits at a time, until `stops(count, mass)` of what lies above and in a bin.
// Leaves the key reached, and the count and mass above it; false when it never stops.
template <typename Stops>
DEVICE bool descend(const Row& row, Shared& shared, Stops stops) {
  uint32_t key = 0, count = 0;
  uint64_t mass = 0;
  for (uint32_t digit = 0; digit < DIGITS; ++digit) {
    fill_bins(row, key, digit, shared);
    if (threadIdx.x == 0) {
      uint32_t bin = BINS;
      while (bin-- > 0) {
        if (shared.counts[bin] > 0 && stops(count + shared.counts[bin], mass + shared.masses[bin])) break;
        count += shared.counts[bin];
        mass += shared.masses[bin];
      }
      shared.chosen = bin;
      shared.key = key | bin << 8 * (DIGITS - 1 - digit);
      shared.count = count;
      shared.mass = mass;
    }
    __syncthreads();
    if (shared.chosen >= BINS) return false;
    key = shared.key;
    count = shared.count;
    mass = shared.mass;
  }
  return true;
}

// Ids in order, an equal share for each thread; the one whose share `ends` falls into finds it.
struct Share {
  uint32_t begin, end;
};
DEVICE Share share_of(uint32_t vocab) {
  uint32_t len = ceil_div(vocab, THREADS);
  uint32_t begin = min_of(threadIdx.x * len, vocab);
  return Share{begin, min_of(begin + len, vocab)};
}

// The `nth` id, from 0, whose weight has exactly this key.
DEVICE uint32_t nth_of_key(const Row& row, uint32_t key, uint32_t nth, Shared& shared) {
  Share share = share_of(row.vocab);
  uint32_t count = 0;
  for (uint32_t id = share.begin; id < share.end; ++id) count += float_to_bits(eligible_weight(row, id)) == key;
  __syncthreads();
  shared.thread_counts[threadIdx.x] = count;
  if (threadIdx.x == 0) shared.chosen = NONE;
  __syncthreads();
  uint32_t before = 0;
  for (uint32_t i = 0; i < threadIdx.x; ++i) before += shared.thread_counts[i];
  if (before <= nth && nth < before + count) {
    for (uint32_t id = share.begin; id < share.end; ++id) {
      if (float_to_bits(eligible_weight(row, id)) == key && before++ == nth) shared.chosen = id;
    }
  }
  __syncthreads();
  return shared.chosen;
}

// The first id at which the mass so far exceeds `target`.
DEVICE uint32_t at_mass(const Row& row, uint64_t target, Shared& shared) {
  Share share = share_of(row.vocab);
  uint64_t mass = 0;
  for (uint32_t id = share.begin; id < share.end; ++id) mass += mass_of(eligible_weight(row, id));
  __syncthreads();
  shared.thread_masses[threadIdx.x] = mass;
  if (threadIdx.x == 0) shared.chosen = NONE;
  __syncthreads();
  uint64_t before = 0;
  for (uint32_t i = 0; i < threadIdx.x; ++i) before += shared.thread_masses[i];
  if (before <= target && target < before + mass) {
    for (uint32_t id = share.begin; id < share.end; ++id) {
      before += mass_of(eligible_weight(row, id));
      if (before > target) {
        shared.chosen = id;
        break;
      }
    }
  }
  __syncthreads();
  return shared.chosen;
}

DEVICE uint64_t mix(uint64_t bits) {
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9ull;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebull;
  return bits ^ bits >> 31;
}

// `mass` times the noise of sampling.rs, rounded down: below `mass`, as the noise is below 1.
DEVICE uint64_t point_of(const SamplingRow& row, uint64_t mass) {
  uint64_t seed = uint64_t(row.seed_hi) << 32 | row.seed_lo;
  uint64_t place = uint64_t(row.choice) << 32 | row.position;
  uint64_t bits = mix(seed + 0x9e3779b97f4a7c15ull);
  bits = mix(bits ^ place * 0xd1b54a32d192ed03ull);
  bits = mix(bits ^ (uint64_t(row.draw) + 1) * 0x8cb92ba72f3d8dd7ull);
  // Of 64 bits, the upper 53.
  return mul_high(mass, bits >> 11 << 11);
}

DEVICE uint32_t draw(const SamplingRow& params, const Row& row, Shared& shared) {
  bool all_ranks = params.top_k == 0 || params.top_k >= row.vocab;
  if (all_ranks && params.top_p >= 1.0f) {
    uint64_t mass = 0;
    for (uint32_t id = threadIdx.x; id < row.vocab; id += THREADS) mass += mass_of(eligible_weight(row, id));
    return at_mass(row, point_of(params, block_sum(mass, shared)), shared);
  }
  uint32_t ranks_max = all_ranks ? row.vocab : params.top_k;
  uint64_t mass_max = ~0ull;
  if (params.top_p < 1.0f) {
    // Of all tokens, those that min-p leaves out too.
    Row whole = row;
    whole.weight_min = 0.0f;
    uint64_t mass = 0;
    for (uint32_t id = threadIdx.x; id < row.vocab; id += THREADS) mass += mass_of(eligible_weight(whole, id));
    mass_max = uint64_t(double(block_sum(mass, shared)) * double(params.top_p));
  }
  // A rank is kept while fewer than `ranks_max` and at most `mass_max` lie above it.
  uint64_t kept;
  bool ends = descend(row, shared, [&](uint32_t count, uint64_t mass) { return count >= ranks_max || mass > mass_max; });
  if (ends) {
    uint64_t each = mass_of(bits_to_float(shared.key));
    uint64_t ties = min_of(shared.counts[shared.key & (BINS - 1)], ranks_max - shared.count);
    if (each > 0) ties = min_of(ties, (mass_max - shared.mass) / each + 1);
    kept = shared.mass + ties * each;
  } else {
    kept = shared.mass;
  }
  uint64_t target = point_of(params, kept);
  __syncthreads();
  if (!descend(row, shared, [&](uint32_t, uint64_t mass) { return mass > target; })) return NONE;
  uint64_t each = mass_of(bits_to_float(shared.key));
  uint32_t nth = uint32_t((target - shared.mass) / each), key = shared.key;
  return nth_of_key(row, key, nth, shared);
}

}  // namespace

// Grid: rows. Shared memory: a `Shared`.
KERNEL(pd_sample, SampleArgs, THREADS) {
  SHARED(Shared, shared_memory);
  Shared& shared = *shared_memory;
  SamplingRow params = args.rows[blockIdx.x];
  float* logits = args.logits + uint64_t(blockIdx.x) * args.vocab;
  uint32_t* top_tokens = args.top_tokens + uint64_t(blockIdx.x) * args.top_n_max;
  float* top_logprobs = args.top_logprobs + uint64_t(blockIdx.x) * args.top_n_max;
  for (uint32_t i = threadIdx.x; i < args.top_n_max; i += THREADS) {
    top_tokens[i] = NONE;
    top_logprobs[i] = bits_to_float(0x7fc00000u);
  }
  penalise(args, params, logits);

  Ranked best = next_ranked(logits, args.vocab, ~0ull, shared);
  float largest = best == 0 ? -INFINITY : logits[id_of(best)];
  if (!(fabsf(largest) < INFINITY)) {
    if (threadIdx.x == 0) {
      args.tokens[blockIdx.x] = NONE;
      args.logprobs[blockIdx.x] = bits_to_float(0x7fc00000u);
    }
    return;
  }
  float part = 0.0f;
  for (uint32_t id = threadIdx.x; id < args.vocab; id += THREADS) {
    float weight = exp2_fast((logits[id] - largest) * LOG2_E);
    if (weight == weight) part += weight;
  }
  double log_sum = double(largest) + log(double(block_sum(part, shared)));

  uint32_t token = id_of(best);
  if (params.given != NONE) {
    token = params.given;
  } else if (params.temperature > 0.0f && params.top_k != 1) {
    Row row{logits, args.vocab, largest, LOG2_E / params.temperature, params.min_p};
    token = draw(params, row, shared);
  }
  if (threadIdx.x == 0) {
    args.tokens[blockIdx.x] = token;
    args.logprobs[blockIdx.x] =
        token < args.vocab ? float(double(logits[token]) - log_sum) : bits_to_float(0x7fc00000u);
  }
  Ranked below = ~0ull;
  for (uint32_t i = 0; i < min_of(params.top_n, args.top_n_max); ++i) {
    below = next_ranked(logits, args.vocab, below, shared);
    if (below == 0) return;
    if (threadIdx.x == 0) {
      top_tokens[i] = id_of(below);
      top_logprobs[i] = float(double(logits[id_of(below)]) - log_sum);
    }
  }
}
