// The second half of sampling, by the rules of sampling.rs, from what the splits of a row came to: one token, its log
// probability, the likeliest tokens, those that are asked for.
//
// Weights are 2^((logit − largest) / temperature · log2 e), and masses their sums in whole units of 2^-40: integers, so
// a sum is the same in any order. Nothing is sorted. A token's place in the order of ranks is a number, and what is
// wanted (where the kept ranks end, which rank a point of their mass falls on) is found by bins of places: first over
// all of them, then over those of the bin that holds it, until it is alone. That goes over the row's list, and over the
// whole row where the list ends too early.
#include "sample.cuh"

using namespace pd;
using namespace pd::sampling;

namespace {

constexpr float MASS_UNIT = 1099511627776.0f;   // 2^40
constexpr float WEIGHT_MIN = 1.0f / MASS_UNIT;  // Lighter tokens have no mass: they are never drawn.
constexpr uint32_t ONE = 0x3f800000u;           // the largest weight's bits
// 2^x is wrong by less than this in the last bits: a weight that is larger by as much is of a larger logit.
constexpr uint32_t WRONG_BITS = 16;
constexpr uint32_t LOG2_BINS = 10, BINS = 1 << LOG2_BINS;
// Logits that a thread loads before it uses them.
constexpr uint32_t AHEAD = 8;

struct Sum {
  uint32_t count;
  uint64_t mass;
  DEVICE void add(const Sum& other) {
    count += other.count;
    mass += other.mass;
  }
};

struct Shared {
  Reduction reduction;
  Sum warps[WARPS];
  // The row's likeliest tokens: all whose logits' bits are `cut` at least. NONE if none is listed.
  Ranked list[LISTED];
  uint32_t listed;
  uint32_t cut;
  uint32_t counts[BINS];
  uint32_t ids[BINS];  // sums of ids: that of a bin's only token
  uint64_t masses[BINS];
  // The bin that is found: sums up to it, and with it.
  Sum before, after;
  uint32_t bin;
  uint32_t arrived;
};

// A logit's weight, 1 at most.
struct Weigh {
  float largest;
  float log2_scale;  // log2(e) / temperature
  DEVICE float operator()(float logit) const {
    float weight = exp2_fast((logit - largest) * log2_scale);
    return weight > 1.0f ? 1.0f : weight;
  }
};
// 0 for NaN too.
DEVICE uint64_t mass_of(float weight) { return weight >= WEIGHT_MIN ? uint64_t(weight * MASS_UNIT) : 0; }

// Tokens among which one is looked for: a row's ids from `begin` to `end`, or those of the list.
struct Source {
  const float* logits;  // null for the list
  uint32_t begin, end;
};

// The order of tokens, by weight or by id, and which of them count.
struct Order {
  Weigh weigh;
  float weight_min;
  uint32_t vocab;
  bool is_by_id;
  DEVICE uint64_t place(uint32_t weight_bits, uint32_t id) const {
    return uint64_t(is_by_id ? 0 : ONE - weight_bits) * vocab + id;
  }
};

// Calls `visit(logit, id)` for each token of a source.
template <typename Visit>
DEVICE void each_token(const Source& source, bool in_runs, const Shared& shared, Visit visit) {
  if (!source.logits) {
    for (uint32_t i = threadIdx.x; i < source.end; i += THREADS) visit(logit_of(shared.list[i]), id_of(shared.list[i]));
    return;
  }
  // In runs of ids, threads of a warp meet in no bin of ids.
  uint32_t run = in_runs ? threadIdx.x * AHEAD : threadIdx.x, step = in_runs ? 1 : THREADS;
  for (uint32_t id = source.begin + run; id < source.end; id += THREADS * AHEAD) {
    float logits[AHEAD];
#pragma unroll
    for (uint32_t a = 0; a < AHEAD; ++a) {
      logits[a] = id + a * step < source.end ? source.logits[id + a * step] : no_number();
    }
#pragma unroll
    for (uint32_t a = 0; a < AHEAD; ++a) visit(logits[a], id + a * step);
  }
}

// Calls `visit(place, mass, id)` for each token that counts and stands before `place_end`.
template <typename Visit>
DEVICE void each_place(const Source& source, const Order& order, uint64_t place_end, const Shared& shared,
                       Visit visit) {
  each_token(source, order.is_by_id, shared, [&](float logit, uint32_t id) {
    float weight = order.weigh(logit);
    if (!(weight >= order.weight_min)) return;
    uint64_t place = order.place(float_to_bits(weight), id);
    if (place < place_end) visit(place, mass_of(weight), id);
  });
}

// The sum of all threads before this one.
DEVICE Sum block_before(const Sum& own, Shared& shared) {
  Sum before{0, 0}, all = own;
#pragma unroll
  for (int mask = 1; mask < 32; mask *= 2) {
    Sum other{shuffle_xor(all.count, mask), shuffle_xor(all.mass, mask)};
    if (lane_id() & mask) before.add(other);
    all.add(other);
  }
  if (lane_id() == 0) shared.warps[warp_id()] = all;
  __syncthreads();
  for (uint32_t w = 0; w < warp_id(); ++w) before.add(shared.warps[w]);
  return before;
}

struct Found {
  bool is_there;
  uint32_t id;
  uint64_t mass;  // up to the token and with it; of all tokens where none is found
};

// The first token with which they are `count_max` or have a mass above `mass_max`.
DEVICE Found find(const Source& source, const Order& order, uint64_t place_end, uint32_t count_max, uint64_t mass_max,
                  Shared& shared) {
  constexpr uint32_t OWN = BINS / THREADS;
  auto reaches = [&](const Sum& sum) { return sum.count >= count_max || sum.mass > mass_max; };
  uint64_t first = 0, last = 0;
  each_place(source, order, place_end, shared, [&](uint64_t place, uint64_t, uint32_t) { last = max_of(last, place); });
  last = block_max(last, shared.reduction);
  Sum before{0, 0};
  // By its exponent as a float, `last` falls into the bins.
  int log2 = int(float_to_bits(float(last)) >> 23) - 127;
  uint32_t shift = uint32_t(max_of(log2 + 1 - int(LOG2_BINS), 0));
  for (;; shift -= min_of(shift, LOG2_BINS)) {
    __syncthreads();
    for (uint32_t bin = threadIdx.x; bin < BINS; bin += THREADS) {
      shared.counts[bin] = 0;
      shared.ids[bin] = 0;
      shared.masses[bin] = 0;
    }
    __syncthreads();
    each_place(source, order, place_end, shared, [&](uint64_t place, uint64_t mass, uint32_t id) {
      if (place < first || place > last) return;
      uint32_t bin = uint32_t((place - first) >> shift);
      atomic_add(&shared.counts[bin], 1);
      atomic_add(&shared.masses[bin], mass);
      atomic_add(&shared.ids[bin], id);
    });
    __syncthreads();
    Sum own{0, 0};
    for (uint32_t bin = threadIdx.x * OWN; bin < (threadIdx.x + 1) * OWN; ++bin) {
      own.add(Sum{shared.counts[bin], shared.masses[bin]});
    }
    Sum sum = block_before(own, shared);
    sum.add(before);
    for (uint32_t bin = threadIdx.x * OWN; bin < (threadIdx.x + 1) * OWN; ++bin) {
      Sum after = sum;
      after.add(Sum{shared.counts[bin], shared.masses[bin]});
      bool is_last = bin == BINS - 1 && !reaches(after);
      if (is_last || (reaches(after) && !reaches(sum))) {
        shared.bin = is_last ? BINS : bin;
        shared.before = sum;
        shared.after = after;
      }
      sum = after;
    }
    __syncthreads();
    uint32_t bin = shared.bin;
    if (bin == BINS) return Found{false, NONE, shared.after.mass};
    before = shared.before;
    if (shared.after.count - before.count == 1) return Found{true, shared.ids[bin], shared.after.mass};
    first += uint64_t(bin) << shift;
    last = min_of(last, first + (uint64_t(1) << shift) - 1);
  }
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

// Lists what the splits have listed and no other split may have left out.
DEVICE void gather(const SampleArgs& args, const SamplePartial* partials, Shared& shared) {
  uint64_t cut = 0;
  for (uint32_t s = threadIdx.x; s < gridDim.x; s += THREADS) cut = max_of(cut, uint64_t(partials[s].cut));
  cut = block_max(cut, shared.reduction);
  if (threadIdx.x == 0) {
    shared.cut = uint32_t(cut);
    shared.listed = 0;
  }
  __syncthreads();
  uint32_t places = LISTED / gridDim.x;
  const Ranked* listed = args.listed + uint64_t(blockIdx.y) * LISTED;
  for (uint32_t i = threadIdx.x; i < gridDim.x * places; i += THREADS) {
    if (i % places >= partials[i / places].listed || bits_of(listed[i]) < cut) continue;
    shared.list[atomic_add(&shared.listed, 1)] = listed[i];
  }
  __syncthreads();
}

// Whether this is the row's last block to come here, which then sees what the others wrote.
DEVICE bool arrives_last(uint32_t* arrivals, Shared& shared) {
  fence_device();
  __syncthreads();
  if (threadIdx.x == 0) shared.arrived = atomic_add(arrivals, 1) + 1;
  __syncthreads();
  fence_device();
  return shared.arrived == gridDim.x;
}

DEVICE Source split_of(const SampleArgs& args, const float* logits, uint32_t split) {
  return Source{logits, split * SPLIT, min_of((split + 1) * SPLIT, args.vocab)};
}

DEVICE uint32_t draw(const SampleArgs& args, const SamplingRow& row, const SamplePartial* partials,
                     const float* logits, const Order& order, Shared& shared) {
  uint64_t mass = 0;
  for (uint32_t s = threadIdx.x; s < gridDim.x; s += THREADS) mass += partials[s].mass;
  mass = block_sum(mass, shared.reduction);
  Source source{nullptr, 0, 0};
  uint64_t place_end = ~0ull, mass_max = ~0ull;
  uint32_t count_max = NONE;
  bool is_whole = true;
  if (order.is_by_id) {
    mass_max = point_of(row, mass);
    uint32_t split = 0;
    while (split + 1 < gridDim.x && mass_max >= partials[split].mass) mass_max -= partials[split++].mass;
    source = split_of(args, logits, split);
  } else {
    source.end = shared.listed;
    // Ranks are kept up to the first with which they are so many, or have more than this mass.
    count_max = row.top_k == 0 ? args.vocab : row.top_k;
    if (row.top_p < 1.0f) mass_max = uint64_t(double(mass) * double(row.top_p));
    if (shared.cut > FINITE) {
      // All tokens of more weight than this are listed.
      uint32_t sure = shared.cut == NONE ? ONE : float_to_bits(order.weigh(unordered(shared.cut))) + WRONG_BITS;
      is_whole = sure < float_to_bits(order.weight_min);
      place_end = order.place(min_of(sure, ONE), 0);
    }
  }
  // First where the kept ranks end, then the one drawn of them.
  for (bool is_end_known = order.is_by_id;;) {
    Found found = find(source, order, place_end, count_max, mass_max, shared);
    if (is_end_known) return found.id;
    if (found.is_there || is_whole) {
      is_end_known = true;
      count_max = NONE;
      mass_max = point_of(row, found.mass);
    } else {
      is_whole = true;
      place_end = ~0ull;
      source = Source{logits, 0, args.vocab};
    }
  }
}

// The largest below `below`, or 0.
DEVICE Ranked next_ranked(const Source& source, Ranked below, Shared& shared) {
  Ranked best = 0;
  each_token(source, false, shared, [&](float logit, uint32_t id) {
    Ranked ranked = rank(logit, id);
    if (ranked < below) best = max_of(best, ranked);
  });
  return block_max(best, shared.reduction);
}

// Fills the row's tables up to `top_n`, or as far as there are numbers.
DEVICE void report_likeliest(const SampleArgs& args, uint32_t top_n, const Source& source, double log_sum,
                             Shared& shared) {
  uint64_t at = uint64_t(blockIdx.y) * args.top_n_max;
  Ranked ranked = ~uint64_t(0);
  for (uint32_t i = 0; i < args.top_n_max; ++i) {
    if (i < top_n && ranked != 0) ranked = next_ranked(source, ranked, shared);
    if (threadIdx.x > 0) continue;
    bool is_there = i < top_n && ranked != 0;
    args.top_tokens[at + i] = is_there ? id_of(ranked) : NONE;
    args.top_logprobs[at + i] = is_there ? float(double(logit_of(ranked)) - log_sum) : no_number();
  }
}

DEVICE float logprob_of(const SampleArgs& args, const float* logits, uint32_t token, double log_sum) {
  return token < args.vocab ? float(double(logits[token]) - log_sum) : no_number();
}

// Fills the row's part of the table of asked tokens.
DEVICE void report_asked(const SampleArgs& args, const float* logits, bool is_finite, double log_sum) {
  uint64_t at = uint64_t(blockIdx.y) * args.asked_max;
  for (uint32_t i = threadIdx.x; i < args.asked_max; i += THREADS) {
    args.asked_logprobs[at + i] = logprob_of(args, logits, is_finite ? args.asked_tokens[at + i] : NONE, log_sum);
  }
}

}  // namespace

// Grid: splits, rows. Shared memory: a `Shared`. Where a row wants masses, its blocks sum them up and the last one goes
// on; elsewhere there is work for one.
KERNEL(pd_sample, SampleArgs, THREADS) {
  SHARED(Shared, shared_memory);
  Shared& shared = *shared_memory;
  const SamplingRow& row = args.rows[blockIdx.y];
  SamplePartial* partials = args.partials + blockIdx.y * gridDim.x;
  const float* logits = args.logits + uint64_t(blockIdx.y) * args.vocab;
  bool is_by_id = keeps_all(row, args.vocab), wants_mass = is_drawn(row) && (is_by_id || row.top_p < 1.0f);
  if (blockIdx.x > 0 && !wants_mass) return;
  Ranked best = 0;
  for (uint32_t s = threadIdx.x; s < gridDim.x; s += THREADS) best = max_of(best, partials[s].best);
  best = block_max(best, shared.reduction);
  float largest = logit_of(best);
  // A temperature next to 0 leaves the largest its weight.
  Weigh weigh{largest, fminf(LOG2_E / row.temperature, 1e30f)};
  Order order{weigh, max_of(row.min_p, WEIGHT_MIN), args.vocab, is_by_id};
  if (wants_mass) {
    // Top-p is of all tokens, those that min-p leaves out too.
    float weight_min = is_by_id ? order.weight_min : WEIGHT_MIN;
    uint64_t mass = 0;
    each_token(split_of(args, logits, blockIdx.x), false, shared, [&](float logit, uint32_t) {
      float weight = weigh(logit);
      if (weight >= weight_min) mass += mass_of(weight);
    });
    mass = block_sum(mass, shared.reduction);
    if (threadIdx.x == 0) partials[blockIdx.x].mass = mass;
    if (!arrives_last(&partials[0].arrivals, shared)) return;
  }

  uint32_t token = row.given;
  bool is_finite = fabsf(largest) < INFINITY;
  if (is_finite && wants_list(args, row)) gather(args, partials, shared);
  if (!is_finite) {
    token = NONE;
  } else if (is_drawn(row)) {
    token = draw(args, row, partials, logits, order, shared);
  } else if (token == NONE) {
    token = id_of(best);
  }
  float sum = 0.0f;
  for (uint32_t s = threadIdx.x; s < gridDim.x; s += THREADS) {
    // A split without a finite logit has no sum.
    if (partials[s].sum > 0.0f) sum += partials[s].sum * exp2_fast((logit_of(partials[s].best) - largest) * LOG2_E);
  }
  sum = block_sum(sum, shared.reduction);
  double log_sum = 0.0;
  // By the first thread and those that report asked tokens.
  if (threadIdx.x < max_of(args.asked_max, 1u)) log_sum = double(largest) + log(double(sum));
  if (threadIdx.x == 0) {
    args.tokens[blockIdx.y] = token;
    args.logprobs[blockIdx.y] = logprob_of(args, logits, token, log_sum);
  }
  report_asked(args, logits, is_finite, log_sum);
  uint32_t top_n = is_finite ? min_of(row.top_n, args.top_n_max) : 0;
  bool is_listed = top_n > 0 && top_n <= shared.listed;
  report_likeliest(args, top_n, is_listed ? Source{nullptr, 0, shared.listed} : Source{logits, 0, args.vocab}, log_sum,
                   shared);
}
