// Layers with recurrent states: the gated delta rule, and the norm with a gate.
#include "states.cuh"

using namespace pd;

namespace {

// A warp of the scan has some columns of a head's S, and PARTS lanes have two, 4 rows each in turn.
//
// All that does not take S is made beforehand for a stage of tokens at once, in shared memory; what that takes of the
// next stage is on its way meanwhile. Products of a token are fused by name, so that its bits do not depend on how a
// compiler unrolls.

constexpr uint32_t SCAN_WARPS = 4, SCAN_PARTS = 8, SCAN_COLUMNS = 2 * WARP / SCAN_PARTS;
// Tokens of a stage, and how many lanes prepare one.
constexpr uint32_t SCAN_STAGE = 16, TOKEN_LANES = SCAN_WARPS * WARP / SCAN_STAGE;
// Added to a sum of squares before its root is taken.
constexpr float L2_EPS = 1e-6f;

struct alignas(8) Two {
  float f[2];
};
struct alignas(16) Four {
  float f[4];
};

struct alignas(16) DeltaGates {
  float decay;
  float beta_decay;
  float qk;  // what q has of k
  uint32_t snapshot;
};

// A token as S takes it. COLUMNS are the block's.
template <uint32_t K_MAX, uint32_t COLUMNS>
struct DeltaToken {
  Four k[K_MAX / 4];
  Four q[K_MAX / 4];
  float beta_v[COLUMNS];
  DeltaGates gates;
};

// Eight elements from `at` on; those beyond `len` are zeros.
template <typename T>
DEVICE Pack8<T> pack_of(const T* of, uint32_t at, uint32_t len) {
  Pack8<T> pack = {};
  auto one = [&](uint32_t i) { return i < len ? to_float(of[i]) : 0.0f; };
#pragma unroll
  for (uint32_t i = 0; i < 8; i += 2) pack.set2(int(i), one(at + i), one(at + i + 1));
  return pack;
}

// What a lane loads of a token: of every TOKEN_LANES packs of q and k one, and of as many columns.
template <typename T, uint32_t K_MAX, uint32_t COLUMNS>
struct RawToken {
  static constexpr uint32_t PACKS = (K_MAX - 1) / (8 * TOKEN_LANES) + 1, VALUES = COLUMNS / TOKEN_LANES;
  Pack8<T> q[PACKS];
  Pack8<T> k[PACKS];
  T v[VALUES];
  T a, b;
  uint32_t snapshot;

  // Values are those from the block's first column on.
  DEVICE void load(const GdnScanArgs& args, uint32_t row, uint32_t head, uint32_t first_column, bool in_packs) {
    uint32_t nth = lane_id() % TOKEN_LANES, k_width = args.num_k_heads * args.k_dim;
    uint64_t row_len = 2 * k_width + uint64_t(args.num_v_heads) * args.v_dim;
    const T* of_row = static_cast<const T*>(args.qkv) + row * row_len;
    const T* qk = of_row + head / (args.num_v_heads / args.num_k_heads) * args.k_dim;
    if (in_packs) {
#pragma unroll
      for (uint32_t i = 0; i < PACKS; ++i) {
        uint32_t at = 8 * (nth + i * TOKEN_LANES);
        if (at >= args.k_dim) continue;
        q[i] = load8(qk + at);
        k[i] = load8(qk + k_width + at);
      }
    } else {
#pragma unroll
      for (uint32_t i = 0; i < PACKS; ++i) {
        uint32_t at = 8 * (nth + i * TOKEN_LANES);
        q[i] = pack_of(qk, at, args.k_dim);
        k[i] = pack_of(qk + k_width, at, args.k_dim);
      }
    }
    const T* values = of_row + 2 * k_width + uint64_t(head) * args.v_dim;
#pragma unroll
    for (uint32_t i = 0; i < VALUES; ++i) {
      uint32_t column = first_column + nth + i * TOKEN_LANES;
      v[i] = column < args.v_dim ? values[column] : T{};
    }
    a = static_cast<const T*>(args.a)[row * args.a_row_stride + head];
    b = static_cast<const T*>(args.b)[row * args.b_row_stride + head];
    snapshot = args.states.snapshot[row];
  }

  // By all lanes of a warp.
  DEVICE void prepare(DeltaToken<K_MAX, COLUMNS>& token, float rate, float dt_bias, float q_scale) const {
    uint32_t nth = lane_id() % TOKEN_LANES;
    float q_squares = 0.0f, k_squares = 0.0f, products = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < PACKS; ++i) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        float of_q = q[i].get(e), of_k = k[i].get(e);
        q_squares = fmaf(of_q, of_q, q_squares);
        k_squares = fmaf(of_k, of_k, k_squares);
        products = fmaf(of_q, of_k, products);
      }
    }
#pragma unroll
    for (uint32_t mask = 1; mask < TOKEN_LANES; mask *= 2) {
      q_squares += shuffle_xor(q_squares, int(mask));
      k_squares += shuffle_xor(k_squares, int(mask));
      products += shuffle_xor(products, int(mask));
    }
    q_scale *= inv_sqrt(q_squares + L2_EPS);
    float k_scale = inv_sqrt(k_squares + L2_EPS), qk = products * q_scale * k_scale;
    auto half = [](const Pack8<T>& pack, int from, float scale) {
      return Four{pack.get(from) * scale, pack.get(from + 1) * scale, pack.get(from + 2) * scale,
                  pack.get(from + 3) * scale};
    };
#pragma unroll
    for (uint32_t i = 0; i < PACKS; ++i) {
      uint32_t at = 2 * (nth + i * TOKEN_LANES);
      if (4 * at >= K_MAX) continue;
#pragma unroll
      for (uint32_t side = 0; side < 2; ++side) {
        token.k[at + side] = half(k[i], int(4 * side), k_scale);
        token.q[at + side] = half(q[i], int(4 * side), q_scale);
      }
    }
    float beta = sigmoid(to_float(b));
#pragma unroll
    for (uint32_t i = 0; i < VALUES; ++i) token.beta_v[nth + i * TOKEN_LANES] = beta * to_float(v[i]);
    float decay = expf(rate * softplus(to_float(a) + dt_bias));
    if (nth == 0) token.gates = DeltaGates{decay, beta * decay, qk, snapshot};
  }
};

// A lane's part of S.
template <int ROWS, uint32_t PARTS>
struct DeltaState {
  static constexpr uint32_t K_MAX = PARTS * ROWS, COLUMN_LANES = WARP / PARTS;
  float s[ROWS][2];

  // What a lane has of a token.
  struct Loaded {
    Four k[ROWS / 4];
    Four q[ROWS / 4];
    Two beta_v;
    DeltaGates gates;
  };

  static DEVICE uint32_t part() { return lane_id() / COLUMN_LANES; }
  static DEVICE uint32_t row(int r) { return 4 * PARTS * (r / 4) + 4 * part() + r % 4; }
  // `within` the block's columns is the lane's first.
  template <typename Token>
  static DEVICE Loaded load_token(const Token& from, uint32_t within) {
    Loaded token;
#pragma unroll
    for (int i = 0; i < ROWS / 4; ++i) {
      token.k[i] = from.k[PARTS * i + part()];
      token.q[i] = from.q[PARTS * i + part()];
    }
    token.beta_v = *reinterpret_cast<const Two*>(from.beta_v + within);
    token.gates = from.gates;
    return token;
  }
  static DEVICE bool in_pairs(const GdnScanArgs& args) {
    uint64_t lens = args.v_dim | args.states.item_len | args.first | args.head_stride;
    return (lens | reinterpret_cast<uint64_t>(args.states.region) / sizeof(float)) % 2 == 0;
  }
  // Zeros where there is no slot. `at` is where the lane's first column begins.
  DEVICE void load(const GdnScanArgs& args, uint64_t at, uint32_t columns, uint32_t slot) {
    const float* from = state_in<float>(args.states, args.fault, OP_GDN_SCAN, slot);
    uint32_t rows = from ? args.k_dim : 0;
    if (from) from += at;
    if (in_pairs(args)) {
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        Two both = {};
        if (row(r) < rows && columns > 0) both = *reinterpret_cast<const Two*>(from + uint64_t(row(r)) * args.v_dim);
        s[r][0] = both.f[0];
        s[r][1] = both.f[1];
      }
      return;
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
      for (uint32_t c = 0; c < 2; ++c) {
        s[r][c] = row(r) < rows && c < columns ? from[uint64_t(row(r)) * args.v_dim + c] : 0.0f;
      }
    }
  }
  DEVICE void keep(const GdnScanArgs& args, uint64_t at, uint32_t columns, uint32_t slot) const {
    float* to = state_in<float>(args.states, args.fault, OP_GDN_SCAN, slot);
    if (!to || columns == 0) return;
    to += at;
    if (in_pairs(args)) {
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        Two both{s[r][0], s[r][1]};
        if (row(r) < args.k_dim) *reinterpret_cast<Two*>(to + uint64_t(row(r)) * args.v_dim) = both;
      }
      return;
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
      for (uint32_t c = 0; c < 2; ++c) {
        if (row(r) < args.k_dim && c < columns) to[uint64_t(row(r)) * args.v_dim + c] = s[r][c];
      }
    }
  }

  // What the lane's rows of k or q read of both columns.
  DEVICE Two read(const Four (&of)[ROWS / 4]) const {
    float chains[2][2] = {};
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
      for (int c = 0; c < 2; ++c) chains[c][r % 2] = fmaf(of[r / 4].f[r % 4], s[r][c], chains[c][r % 2]);
    }
    return Two{chains[0][0] + chains[0][1], chains[1][0] + chains[1][1]};
  }

  // Takes a token in, of which `reads` is what k reads beforehand, and makes that of the `following` k. Returns what q
  // reads afterwards: of the first column in lanes of even parts, of the second in others.
  DEVICE float take(const Loaded& token, const Loaded& following, Two& reads) {
#pragma unroll
    for (uint32_t mask = COLUMN_LANES; mask < WARP; mask *= 2) {
#pragma unroll
      for (int c = 0; c < 2; ++c) reads.f[c] += shuffle_xor(reads.f[c], int(mask));
    }
    // q reads S as it was, while k's sums are made; what the token adds to that is q·k of it.
    Two outs = read(token.q);
    bool has_second = part() % 2 == 1;
    float out = has_second ? outs.f[1] : outs.f[0];
    out += shuffle_xor(has_second ? outs.f[0] : outs.f[1], COLUMN_LANES);
#pragma unroll
    for (uint32_t mask = 2 * COLUMN_LANES; mask < WARP; mask *= 2) out += shuffle_xor(out, int(mask));
    float deltas[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) deltas[c] = fmaf(-token.gates.beta_decay, reads.f[c], token.beta_v.f[c]);
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
      for (int c = 0; c < 2; ++c) s[r][c] = fmaf(token.k[r / 4].f[r % 4], deltas[c], token.gates.decay * s[r][c]);
    }
    reads = read(following.k);
    return fmaf(token.gates.qk, has_second ? deltas[1] : deltas[0], token.gates.decay * out);
  }
};

// For k heads of up to PARTS · ROWS elements.
template <typename T, int ROWS, uint32_t PARTS>
DEVICE void gdn_scan(const GdnScanArgs& args) {
  using State = DeltaState<ROWS, PARTS>;
  constexpr uint32_t WARP_COLUMNS = SCAN_COLUMNS * SCAN_PARTS / PARTS, COLUMNS = SCAN_WARPS * WARP_COLUMNS;
  using Token = DeltaToken<State::K_MAX, COLUMNS>;
  // With two, registers take turns; floats leave too few for that.
  [[maybe_unused]] constexpr int TURNS = sizeof(T) == 2 ? 2 : 1;
  SHARED(Token, stages);  // [2][SCAN_STAGE]
  const States& states = args.states;
  uint32_t head = blockIdx.y, seq = blockIdx.z, first_column = blockIdx.x * COLUMNS;
  uint32_t within = warp_id() * WARP_COLUMNS + 2 * (lane_id() % State::COLUMN_LANES);
  uint32_t column = first_column + within, begin = states.q_indptr[seq], end = states.q_indptr[seq + 1];
  uint32_t written = states.write[seq];
  // The token of a stage that this lane helps to prepare, and its warp's first.
  uint32_t mine = threadIdx.x / TOKEN_LANES, of_warp = warp_id() * (WARP / TOKEN_LANES);
  uint64_t v_width = uint64_t(args.num_v_heads) * args.v_dim;
  uint64_t row_len = 2 * args.num_k_heads * args.k_dim + v_width;
  bool in_packs = args.k_dim % 8 == 0 && row_len % 8 == 0 && reinterpret_cast<uint64_t>(args.qkv) % 16 == 0;
  RawToken<T, State::K_MAX, COLUMNS> raw = {};
  if (begin + mine < end) raw.load(args, begin + mine, head, first_column, in_packs);

  uint64_t at = args.first + head * args.head_stride + column;
  uint32_t columns = column < args.v_dim ? min_of(args.v_dim - column, 2u) : 0;
  State state;
  state.load(args, at, columns, states.read[seq]);
  float rate = args.decay[head], dt_bias = args.dt_bias[head];
  uint32_t out_column = column + State::part() % 2;
  bool has_out = State::part() < 2 && out_column < args.v_dim;
  T* out = static_cast<T*>(args.out) + begin * v_width + uint64_t(head) * args.v_dim + out_column;
  Token* stage = stages;
  for (uint32_t first = begin; first < end; first += SCAN_STAGE) {
    // Others may still read the stage before, which is the other one.
    if (first + of_warp < end) raw.prepare(stage[mine], rate, dt_bias, args.q_scale);
    uint32_t next = first + SCAN_STAGE + mine;
    if (next < end) raw.load(args, next, head, first_column, in_packs);
    __syncthreads();
    uint32_t count = min_of(end - first, SCAN_STAGE);
    auto token = State::load_token(*stage, within);
    Two reads = state.read(token.k);
#pragma unroll TURNS
    for (uint32_t i = 0; i < count; ++i) {
      auto following = State::load_token(stage[min_of(i + 1, count - 1)], within);
      float read = state.take(token, following, reads);
      if (has_out) *out = from_float<T>(read);
      out += v_width;
      if (token.gates.snapshot != NONE) state.keep(args, at, columns, token.gates.snapshot);
      token = following;
    }
    stage = stage == stages ? stages + SCAN_STAGE : stages;
  }
  state.keep(args, at, columns, written);
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

// Grid: columns by what a block has, v heads, sequences. Shared memory: two stages.
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
