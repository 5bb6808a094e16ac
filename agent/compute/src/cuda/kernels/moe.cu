// Mixtures of experts, but for their linears (experts.cu): routing, tiles of sorted choices, and weighted sums.
#include "args.cuh"

using namespace pd;

namespace {

constexpr uint32_t ROUTE_WARPS = 4;
// Added to a sum of weights before they are divided by it, as sigmoids may all be 0.
constexpr float LEAST_WEIGHT_SUM = 1e-20f;

// Orders as the values do, and NaN as −∞. 0 is below all.
DEVICE uint32_t key_of(float value) { return ordered(value == value ? value : -INFINITY); }

// A warp's keys, the largest of which are taken one by one. A lane writes every 32nd key, and it alone reads them here.
struct Keys {
  uint32_t* keys;
  uint32_t len;
  // This lane's largest, of equal ones the first.
  uint32_t largest, at;

  DEVICE Keys(uint32_t* keys, uint32_t len) : keys(keys), len(len) { look(); }

  DEVICE void look() {
    largest = 0;
    at = NONE;
    for (uint32_t i = lane_id(); i < len; i += WARP) {
      uint32_t key = keys[i];
      if (key <= largest) continue;
      largest = key;
      at = i;
    }
  }
  // Takes the largest of all, of equal ones the first, and leaves 0 in its place.
  DEVICE uint32_t take() {
    uint32_t index = warp_least(largest == warp_largest(largest) ? at : NONE);
    if (index == at) {
      keys[index] = 0;
      look();
    }
    return index;
  }
};

// In place, in the order of lanes.
DEVICE void softmax(float* values, uint32_t len) {
  float largest = -INFINITY, sum = 0.0f;
  for (uint32_t i = lane_id(); i < len; i += WARP) largest = fmaxf(largest, values[i]);
  largest = warp_max(largest);
  for (uint32_t i = lane_id(); i < len; i += WARP) {
    values[i] = expf(values[i] - largest);
    sum += values[i];
  }
  sum = warp_sum(sum);
  for (uint32_t i = lane_id(); i < len; i += WARP) values[i] /= sum;
}

// Leaves keys of the best groups; those of others become the smallest number's.
DEVICE void leave_out_groups(const MoeRouteArgs& args, uint32_t* keys, uint32_t* groups) {
  uint32_t len = args.num_experts / args.groups;
  warp_sync();
  for (uint32_t group = lane_id(); group < args.groups; group += WARP) {
    uint32_t best = 0, second = 0;
    for (uint32_t i = group * len; i < (group + 1) * len; ++i) {
      uint32_t key = keys[i];
      second = max_of(second, min_of(best, key));
      best = max_of(best, key);
    }
    float worth = unordered(best);
    if (args.group_best == 2) worth += unordered(second);
    groups[group] = key_of(worth);
  }
  Keys best(groups, args.groups);
  for (uint32_t i = 0; i < args.groups_chosen; ++i) best.take();
  warp_sync();
  for (uint32_t i = lane_id(); i < args.num_experts; i += WARP) {
    if (groups[i / len] != 0) keys[i] = key_of(-INFINITY);
  }
}

}  // namespace

// Grid: rows / ROUTE_WARPS. Shared memory, for each warp: scores and keys of the experts, keys of the groups, and the
// weights of the chosen, 4 bytes each.
KERNEL(pd_moe_route, MoeRouteArgs, ROUTE_WARPS * 32) {
  SHARED(float, shared);
  uint32_t row = blockIdx.x * ROUTE_WARPS + warp_id(), lane = lane_id();
  if (row >= args.rows) return;
  uint32_t experts = args.num_experts, top_k = args.top_k;
  float* scores = shared + warp_id() * (2 * experts + args.groups + top_k);
  auto keys = reinterpret_cast<uint32_t*>(scores + experts);
  uint32_t* groups = keys + experts;
  auto weights = reinterpret_cast<float*>(groups + args.groups);
  const float* logits = args.logits + uint64_t(row) * experts;
  for (uint32_t i = lane; i < experts; i += WARP) {
    scores[i] = args.scores == SIGMOID ? sigmoid(logits[i]) : logits[i];
  }
  if (args.scores == SOFTMAX) softmax(scores, experts);
  for (uint32_t i = lane; i < experts; i += WARP) {
    keys[i] = key_of(scores[i] + (args.choice_bias ? args.choice_bias[i] : 0.0f));
  }
  if (args.groups > 0) leave_out_groups(args, keys, groups);
  warp_sync();
  Keys best(keys, experts);
  for (uint32_t i = 0; i < top_k; ++i) {
    uint32_t expert = best.take();
    if (i % WARP != lane) continue;
    args.chosen[uint64_t(row) * top_k + i] = expert;
    weights[i] = scores[expert];
  }
  if (args.scores == SOFTMAX_OF_CHOSEN) softmax(weights, top_k);
  float sum = 0.0f;
  for (uint32_t i = lane; i < top_k; i += WARP) sum += weights[i];
  sum = args.normalise ? warp_sum(sum) + LEAST_WEIGHT_SUM : 1.0f;
  for (uint32_t i = lane; i < top_k; i += WARP) {
    args.weights[uint64_t(row) * top_k + i] = weights[i] / sum * args.scale;
  }
}

namespace {

// An expert has a thread.
constexpr uint32_t EXPERTS_MAX = 1024;

// Sums of the threads before this one, of two numbers each; `totals` those of all. A barrier comes first and last.
DEVICE void sums_before(uint32_t* memory, uint32_t (&values)[2], uint32_t (&totals)[2]) {
  uint32_t own[2] = {values[0], values[1]};
  for (uint32_t step = 1; step < blockDim.x; step *= 2) {
    __syncthreads();
    for (int i = 0; i < 2; ++i) memory[i * blockDim.x + threadIdx.x] = values[i];
    __syncthreads();
    if (threadIdx.x < step) continue;
    for (int i = 0; i < 2; ++i) values[i] += memory[i * blockDim.x + threadIdx.x - step];
  }
  __syncthreads();
  for (int i = 0; i < 2; ++i) memory[i * blockDim.x + threadIdx.x] = values[i];
  __syncthreads();
  for (int i = 0; i < 2; ++i) {
    totals[i] = memory[(i + 1) * blockDim.x - 1];
    values[i] -= own[i];
  }
  __syncthreads();
}

}  // namespace

namespace {

// Choices that a thread asks for at once.
constexpr uint32_t CHOICES_AHEAD = 8;

// Calls `each` with every choice and its expert's id, a thread's in turn.
template <typename Each>
DEVICE void for_choices(const ExpertTilesArgs& args, const Each& each) {
  for (uint32_t first = threadIdx.x; first < args.num_choices; first += CHOICES_AHEAD * blockDim.x) {
    uint32_t ids[CHOICES_AHEAD];
#pragma unroll
    for (uint32_t i = 0; i < CHOICES_AHEAD; ++i) {
      uint32_t c = first + i * blockDim.x;
      ids[i] = c < args.num_choices ? args.chosen[c] : 0;
    }
#pragma unroll
    for (uint32_t i = 0; i < CHOICES_AHEAD; ++i) {
      uint32_t c = first + i * blockDim.x;
      if (c < args.num_choices) each(c, ids[i]);
    }
  }
}

}  // namespace

// Grid: one block. Shared memory: 3 · EXPERTS_MAX words.
KERNEL(pd_expert_tiles, ExpertTilesArgs, EXPERTS_MAX) {
  SHARED(uint32_t, counts);  // [EXPERTS_MAX]; then memory of sums
  uint32_t* memory = counts + EXPERTS_MAX;
  uint32_t expert = threadIdx.x;
  counts[expert] = 0;
  __syncthreads();
  const LocalExperts& experts = args.experts;
  for_choices(args, [&](uint32_t, uint32_t id) {
    if (id >= experts.num_experts) report_fault(args.fault, OP_MOE_EXPERTS, FAULT_EXPERT, id, experts.num_experts);
    if (experts.has(id)) atomic_add(&counts[experts.of(id)], 1);
  });
  __syncthreads();
  uint32_t count = counts[expert], tiles = ceil_div(count, args.tile_rows);
  uint32_t before[2] = {count, tiles}, totals[2];
  sums_before(memory, before, totals);
  for (uint32_t i = 0; i < tiles; ++i) {
    uint32_t done = i * args.tile_rows;
    args.tiles[before[1] + i] = ExpertTile{expert, before[0] + done, min_of(count - done, args.tile_rows), 0};
  }
  for (uint32_t i = totals[1] + threadIdx.x; i < args.tiles_max; i += blockDim.x) args.tiles[i] = ExpertTile{};
  // From here on the place of the expert's next choice. Which of its choices comes first changes no bit.
  counts[expert] = before[0];
  __syncthreads();
  for_choices(args, [&](uint32_t c, uint32_t id) {
    if (!experts.has(id)) return;
    uint32_t place = atomic_add(&counts[experts.of(id)], 1);
    args.choices[place] = c;
    args.rows[place] = c / args.top_k;
  });
}

namespace {

constexpr uint32_t COLUMNS = 256;
// Shares whose sums are added in one tree.
constexpr uint32_t SHARES = 8;
// Terms that are loaded at once.
constexpr uint32_t TERMS = 8;

// A thread adds up a column of a row.
template <typename T>
DEVICE void combine(const MoeCombineArgs& args) {
  SHARED(float, weights);  // [top_k]; then the share of each term, NONE of one that is not here
  auto shares = reinterpret_cast<uint32_t*>(weights + args.top_k);
  uint32_t row = blockIdx.y, column = blockIdx.x * COLUMNS + threadIdx.x;
  uint64_t first = uint64_t(row) * args.top_k;
  for (uint32_t i = threadIdx.x; i < args.top_k; i += blockDim.x) {
    uint32_t id = args.chosen[first + i];
    weights[i] = args.weights[first + i];
    shares[i] = args.experts.has(id) ? SHARES * id / args.experts.num_experts : NONE;
  }
  __syncthreads();
  if (column >= args.hidden) return;
  const T* terms = static_cast<const T*>(args.terms) + first * args.hidden + column;
  float sums[SHARES] = {};
  for (uint32_t i = 0; i < args.top_k; i += TERMS) {
    float values[TERMS];
#pragma unroll
    for (uint32_t t = 0; t < TERMS; ++t) {
      bool is_here = i + t < args.top_k && shares[i + t] != NONE;
      values[t] = is_here ? to_float(terms[uint64_t(i + t) * args.hidden]) : 0.0f;
    }
#pragma unroll
    for (uint32_t t = 0; t < TERMS; ++t) {
      if (i + t >= args.top_k) continue;
#pragma unroll
      for (uint32_t s = 0; s < SHARES; ++s) {
        if (shares[i + t] == s) sums[s] += values[t] * weights[i + t];
      }
    }
  }
  float low = (sums[0] + sums[1]) + (sums[2] + sums[3]), high = (sums[4] + sums[5]) + (sums[6] + sums[7]);
  static_cast<T*>(args.sums)[uint64_t(row) * args.hidden + column] = from_float<T>(low + high);
}

template <typename T>
DEVICE void finish(const MoeFinishArgs& args) {
  uint32_t column = blockIdx.x * COLUMNS + threadIdx.x;
  if (column >= args.hidden) return;
  uint64_t at = uint64_t(blockIdx.y) * args.hidden + column;
  float sum = to_float(static_cast<const T*>(args.sums)[at]);
  if (args.shared) {
    float factor = args.gate ? sigmoid(args.gate[blockIdx.y]) : 1.0f;
    sum += factor * to_float(static_cast<const T*>(args.shared)[at]);
  }
  T* x = static_cast<T*>(args.x) + at;
  *x = from_float<T>(to_float(*x) + sum);
}

}  // namespace

// Grid: hidden / COLUMNS, rows. Shared memory: 2 · top_k words.
KERNEL(pd_moe_combine_bf16, MoeCombineArgs, COLUMNS) { combine<bf16>(args); }
KERNEL(pd_moe_combine_f32, MoeCombineArgs, COLUMNS) { combine<float>(args); }

// Grid: hidden / COLUMNS, rows.
KERNEL(pd_moe_finish_bf16, MoeFinishArgs, COLUMNS) { finish<bf16>(args); }
KERNEL(pd_moe_finish_f32, MoeFinishArgs, COLUMNS) { finish<float>(args); }
