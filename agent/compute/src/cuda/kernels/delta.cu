// Layers with recurrent states: the short convolution, the gated delta rule, and the norm with a gate.
//
// A thread or lane reads its part of a state before it writes any, and alone has that part; so a sequence may read and
// write one slot.
#include "args.cuh"

using namespace pd;

namespace {

// The state in a slot, or null where there is none. A slot that does not exist is a fault.
template <typename T>
DEVICE T* state_in(const States& states, Fault* fault, uint32_t op, uint32_t slot) {
  if (slot == NONE) return nullptr;
  if (slot < states.num_slots) return static_cast<T*>(states.region) + slot * states.item_len;
  report_fault(fault, op, FAULT_STATE, slot, states.num_slots);
  return nullptr;
}

constexpr uint32_t CONV_THREADS = 128;

// A thread makes a channel of some rows of a sequence; the first of its blocks keeps the states, too.
template <typename T>
DEVICE void causal_conv(const CausalConvArgs& args) {
  SHARED(float, before);  // [taps - 1][CONV_THREADS]
  const States& states = args.states;
  uint32_t channel = blockIdx.x * CONV_THREADS + threadIdx.x, seq = blockIdx.z, kept = args.taps - 1;
  uint32_t begin = states.q_indptr[seq], len = states.q_indptr[seq + 1] - begin;
  uint32_t first = blockIdx.y * args.chunk, last = min_of(first + args.chunk, len);
  bool has_states = first == 0;
  if (channel >= args.channels || (first >= len && !has_states)) return;

  ConvTensor tensor = args.tensors[0];
#pragma unroll
  for (uint32_t i = 1; i < CONV_TENSORS; ++i) {
    if (channel >= args.tensors[i].first_channel) tensor = args.tensors[i];
  }
  uint32_t within = channel - tensor.first_channel, head = within / tensor.head_channels;
  uint64_t place = tensor.first + head * tensor.head_stride + within % tensor.head_channels;
  if (has_states) {
    const T* state = state_in<T>(states, args.fault, OP_CAUSAL_CONV, states.read[seq]);
    for (uint32_t i = 0; i < kept; ++i) {
      before[i * CONV_THREADS + threadIdx.x] = state ? to_float(state[place + i * tensor.head_channels]) : 0.0f;
    }
  }
  const T* x = static_cast<const T*>(args.x) + begin * args.x_row_stride + channel;
  // Counted from the oldest row of the state.
  auto input = [&](uint32_t i) {
    return i < kept ? before[i * CONV_THREADS + threadIdx.x] : to_float(x[(i - kept) * args.x_row_stride]);
  };
  T* out = static_cast<T*>(args.out) + uint64_t(begin) * args.channels + channel;
  for (uint32_t row = first; row < last; ++row) {
    float sum = 0.0f;
    for (uint32_t tap = 0; tap < args.taps; ++tap) {
      sum += args.weight[uint64_t(tap) * args.channels + channel] * input(row + tap);
    }
    out[uint64_t(row) * args.channels] = from_float<T>(silu(sum));
  }
  if (!has_states) return;
  // The state after so many rows.
  auto keep = [&](uint32_t done, uint32_t slot) {
    T* state = state_in<T>(states, args.fault, OP_CAUSAL_CONV, slot);
    if (!state) return;
    for (uint32_t i = 0; i < kept; ++i) state[place + i * tensor.head_channels] = from_float<T>(input(done + i));
  };
  // Few rows have one, so their slots come several at a time.
  constexpr uint32_t AHEAD = 8;
  for (uint32_t row = 0; row < len; row += AHEAD) {
    uint32_t slots[AHEAD];
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; ++i) slots[i] = row + i < len ? states.snapshot[begin + row + i] : NONE;
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; ++i) {
      if (slots[i] != NONE) keep(row + i + 1, slots[i]);
    }
  }
  keep(len, states.write[seq]);
}

// --- The gated delta rule: a warp has some columns of a head's S, and PARTS lanes have one, 4 rows each in turn. ---

constexpr uint32_t SCAN_WARPS = 4, SCAN_PARTS = 4, SCAN_COLUMNS = WARP / SCAN_PARTS;
// Added to a sum of squares before its root is taken.
constexpr float L2_EPS = 1e-6f;

struct alignas(16) Four {
  float f[4];
};

// What a token brings, asked for while the one before it is computed. A lane has every 32nd element of q and k.
template <int LEN>
struct DeltaToken {
  float q[LEN];
  float k[LEN];
  float v, a, b;
  uint32_t snapshot;
};

// Sums over the lanes of a column.
template <uint32_t COLUMNS>
DEVICE float column_sum(float value) {
#pragma unroll
  for (uint32_t mask = COLUMNS; mask < WARP; mask *= 2) value += shuffle_xor(value, int(mask));
  return value;
}

// For k heads of up to PARTS · ROWS elements.
template <typename T, int ROWS, uint32_t PARTS>
DEVICE void gdn_scan(const GdnScanArgs& args) {
  constexpr uint32_t K_MAX = PARTS * ROWS, COLUMNS = WARP / PARTS;
  constexpr int LOADS = K_MAX / WARP;
  SHARED(float, shared);  // [SCAN_WARPS][2][k, q][K_MAX]: of a token and the one before it
  const States& states = args.states;
  uint32_t lane = lane_id(), part = lane / COLUMNS, head = blockIdx.y, seq = blockIdx.z;
  uint32_t first_column = (blockIdx.x * SCAN_WARPS + warp_id()) * COLUMNS;
  uint32_t column = first_column + lane % COLUMNS;
  if (first_column >= args.v_dim) return;
  bool is_column = column < args.v_dim;
  float* both = shared + warp_id() * 4 * K_MAX;
  uint32_t begin = states.q_indptr[seq], end = states.q_indptr[seq + 1];
  uint32_t k_head = head / (args.num_v_heads / args.num_k_heads), k_width = args.num_k_heads * args.k_dim;
  uint64_t v_width = uint64_t(args.num_v_heads) * args.v_dim, row_len = 2 * k_width + v_width;

  auto row_of = [&](int r) { return 4 * PARTS * (r / 4) + 4 * part + r % 4; };
  uint64_t place = args.first + head * args.head_stride + column;
  float s[ROWS];
  const float* from = state_in<float>(states, args.fault, OP_GDN_SCAN, states.read[seq]);
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    bool is_there = from && is_column && row_of(r) < args.k_dim;
    s[r] = is_there ? from[place + uint64_t(row_of(r)) * args.v_dim] : 0.0f;
  }
  auto keep = [&](uint32_t slot) {
    float* to = state_in<float>(states, args.fault, OP_GDN_SCAN, slot);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      if (to && is_column && row_of(r) < args.k_dim) to[place + uint64_t(row_of(r)) * args.v_dim] = s[r];
    }
  };
  auto load = [&](uint32_t row) {
    DeltaToken<LOADS> token = {};
    if (row >= end) return token;
    const T* qk = static_cast<const T*>(args.qkv) + row * row_len + k_head * args.k_dim;
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      uint32_t at = lane + i * WARP;
      if (at >= args.k_dim) continue;
      token.q[i] = to_float(qk[at]);
      token.k[i] = to_float(qk[k_width + at]);
    }
    const T* v = static_cast<const T*>(args.qkv) + row * row_len + 2 * k_width + uint64_t(head) * args.v_dim;
    if (is_column) token.v = to_float(v[column]);
    token.a = to_float(static_cast<const T*>(args.a)[row * args.a_row_stride + head]);
    token.b = to_float(static_cast<const T*>(args.b)[row * args.b_row_stride + head]);
    token.snapshot = states.snapshot[row];
    return token;
  };
  float rate = args.decay[head], dt_bias = args.dt_bias[head];
  DeltaToken<LOADS> next = load(begin);
  for (uint32_t row = begin; row < end; ++row) {
    DeltaToken<LOADS> token = next;
    next = load(row + 1);
    float q_squares = 0.0f, k_squares = 0.0f;
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      q_squares += token.q[i] * token.q[i];
      k_squares += token.k[i] * token.k[i];
    }
    float q_scale = inv_sqrt(warp_sum(q_squares) + L2_EPS) * args.q_scale;
    float k_scale = inv_sqrt(warp_sum(k_squares) + L2_EPS);
    // Lanes may still read what the token before has.
    float* k = both + row % 2 * 2 * K_MAX;
    float* q = k + K_MAX;
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
      k[lane + i * WARP] = token.k[i] * k_scale;
      q[lane + i * WARP] = token.q[i] * q_scale;
    }
    warp_sync();
    auto four = [&](const float* of, int r) {
      return *reinterpret_cast<const Four*>(of + 4 * PARTS * (r / 4) + 4 * part);
    };
    float decay = expf(rate * softplus(token.a + dt_bias));
    float chains[4] = {};
#pragma unroll
    for (int r = 0; r < ROWS; r += 4) {
      Four ks = four(k, r);
#pragma unroll
      for (int i = 0; i < 4; ++i) chains[i] += ks.f[i] * s[r + i];
    }
    float read = column_sum<COLUMNS>((chains[0] + chains[1]) + (chains[2] + chains[3]));
    float delta = sigmoid(token.b) * (token.v - decay * read);
    float outs[4] = {};
#pragma unroll
    for (int r = 0; r < ROWS; r += 4) {
      Four ks = four(k, r), qs = four(q, r);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[r + i] = decay * s[r + i] + ks.f[i] * delta;
        outs[i] += qs.f[i] * s[r + i];
      }
    }
    float out = column_sum<COLUMNS>((outs[0] + outs[1]) + (outs[2] + outs[3]));
    if (part == 0 && is_column) {
      static_cast<T*>(args.out)[row * v_width + uint64_t(head) * args.v_dim + column] = from_float<T>(out);
    }
    if (token.snapshot != NONE) keep(token.snapshot);
  }
  keep(states.write[seq]);
}

constexpr uint32_t NORM_WARPS = 8;

// A warp norms a head of a row.
template <typename T>
DEVICE void gated_norm(const GatedNormArgs& args) {
  uint32_t row = blockIdx.x, head = blockIdx.y * NORM_WARPS + warp_id();
  if (head >= args.num_heads) return;
  T* x = static_cast<T*>(args.x) + (uint64_t(row) * args.num_heads + head) * args.head_dim;
  const T* z = static_cast<const T*>(args.z) + row * args.z_row_stride + uint64_t(head) * args.head_dim;
  float squares = 0.0f;
  for (uint32_t i = lane_id(); i < args.head_dim; i += WARP) {
    float value = to_float(x[i]);
    squares += value * value;
  }
  float scale = inv_sqrt(warp_sum(squares) / float(args.head_dim) + args.eps);
  for (uint32_t i = lane_id(); i < args.head_dim; i += WARP) {
    x[i] = from_float<T>(to_float(x[i]) * scale * args.weight[i] * silu(to_float(z[i])));
  }
}

}  // namespace

// Grid: channels / CONV_THREADS, chunks of the longest sequence, sequences. Shared memory: [taps - 1][CONV_THREADS]
// floats.
KERNEL(pd_causal_conv_bf16, CausalConvArgs, CONV_THREADS) { causal_conv<bf16>(args); }
KERNEL(pd_causal_conv_f32, CausalConvArgs, CONV_THREADS) { causal_conv<float>(args); }

// Grid: columns by what a block has, v heads, sequences. Shared memory: SCAN_WARPS · 4 · K_MAX floats.
#define GDN_SCAN(k_max, parts)                                         \
  KERNEL(pd_gdn_scan_##k_max##_bf16, GdnScanArgs, SCAN_WARPS * 32) {   \
    gdn_scan<bf16, k_max / (parts), parts>(args);                      \
  }                                                                    \
  KERNEL(pd_gdn_scan_##k_max##_f32, GdnScanArgs, SCAN_WARPS * 32) {    \
    gdn_scan<float, k_max / (parts), parts>(args);                     \
  }
GDN_SCAN(32, SCAN_PARTS)
GDN_SCAN(128, SCAN_PARTS)
// Twice the lanes: with twice the rows, registers do not suffice.
GDN_SCAN(256, 2 * SCAN_PARTS)

// Grid: rows, heads / NORM_WARPS.
KERNEL(pd_gated_norm_bf16, GatedNormArgs, NORM_WARPS * 32) { gated_norm<bf16>(args); }
KERNEL(pd_gated_norm_f32, GatedNormArgs, NORM_WARPS * 32) { gated_norm<float>(args); }
