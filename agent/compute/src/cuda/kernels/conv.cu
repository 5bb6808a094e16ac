// The short convolution of layers with recurrent states.
#include "states.cuh"

using namespace pd;

namespace {

constexpr uint32_t THREADS = 128;
// Rows whose inputs are asked for at once.
constexpr uint32_t ROWS_AHEAD = 8;
// Rows that a thread asks for snapshots at once.
constexpr uint32_t SLOTS = 4;

// A channel of a sequence.
template <typename T>
struct Channel {
  const T* x;
  uint32_t row_stride;
  float* before;   // what the state has of it, THREADS apart
  const T* state;  // null where there is none
  uint32_t state_stride;
  uint32_t kept;

  // Counted from the oldest row of the state.
  DEVICE float input(uint32_t i) const {
    return i < kept ? before[i * THREADS] : to_float(x[uint64_t(i - kept) * row_stride]);
  }
  // The next rows of so many that are `left`; `from` moves on.
  DEVICE void load_rows(T (&rows)[ROWS_AHEAD], const T*& from, uint32_t left) const {
#pragma unroll
    for (uint32_t i = 0; i < ROWS_AHEAD; ++i, from += row_stride) rows[i] = i < left ? *from : T{};
  }
  DEVICE T of_state(uint32_t i) const { return state ? state[uint64_t(i) * state_stride] : T{}; }
};

// Makes rows from `first` on. All is asked for before any of it is awaited; inputs stay in registers while rows take
// them.
template <uint32_t TAPS, typename T>
DEVICE void convolve(const Channel<T>& channel, const float* weight, T* out, uint32_t channels, uint32_t first,
                     uint32_t last) {
  constexpr uint32_t KEPT = TAPS - 1;
  float weights[TAPS], inputs[KEPT + ROWS_AHEAD];
  T rows[ROWS_AHEAD], before[KEPT];
  const T* x = channel.x + uint64_t(first) * channel.row_stride;
  uint32_t left = last - first;
  channel.load_rows(rows, x, left);
#pragma unroll
  for (uint32_t tap = 0; tap < TAPS; ++tap) weights[tap] = weight[uint64_t(tap) * channels];
  if (first == 0) {
#pragma unroll
    for (uint32_t i = 0; i < KEPT; ++i) before[i] = channel.of_state(i);
#pragma unroll
    for (uint32_t i = 0; i < KEPT; ++i) channel.before[i * THREADS] = to_float(before[i]);
  } else {
#pragma unroll
    for (uint32_t i = 0; i < KEPT; ++i) before[i] = channel.x[uint64_t(first - KEPT + i) * channel.row_stride];
  }
#pragma unroll
  for (uint32_t i = 0; i < KEPT; ++i) inputs[i] = to_float(before[i]);
  out += uint64_t(first) * channels;
  while (left > 0) {
#pragma unroll
    for (uint32_t i = 0; i < ROWS_AHEAD; ++i) inputs[KEPT + i] = to_float(rows[i]);
    uint32_t made = min_of(left, ROWS_AHEAD);
    left -= made;
    channel.load_rows(rows, x, left);
#pragma unroll
    for (uint32_t i = 0; i < ROWS_AHEAD; ++i, out += channels) {
      if (i >= made) break;
      float sum = 0.0f;
#pragma unroll
      for (uint32_t tap = 0; tap < TAPS; ++tap) sum += weights[tap] * inputs[i + tap];
      *out = from_float<T>(silu(sum));
    }
#pragma unroll
    for (uint32_t i = 0; i < KEPT; ++i) inputs[i] = inputs[ROWS_AHEAD + i];
  }
}

template <typename T>
DEVICE void convolve_any(const Channel<T>& channel, const float* weight, T* out, uint32_t channels, uint32_t first,
                         uint32_t last) {
  for (uint32_t i = 0; i < channel.kept && first == 0; ++i) channel.before[i * THREADS] = to_float(channel.of_state(i));
  for (uint32_t row = first; row < last; ++row) {
    float sum = 0.0f;
    for (uint32_t tap = 0; tap <= channel.kept; ++tap) {
      sum += weight[uint64_t(tap) * channels] * channel.input(row + tap);
    }
    out[uint64_t(row) * channels] = from_float<T>(silu(sum));
  }
}

// Calls `found` with each row that has a snapshot, and its slot; `own` is that of the row of this thread's number. A
// block looks for them together, since few rows have one.
template <typename Found>
DEVICE void find_snapshots(uint32_t own, const uint32_t* snapshots, uint32_t len, const Found& found) {
  bool has_some = own != NONE;
  for (uint32_t first = 0, end = THREADS; first < len; first = end, end += SLOTS * THREADS) {
    if (first > 0) {
      has_some = false;
#pragma unroll
      for (uint32_t i = 0; i < SLOTS; ++i) {
        uint32_t row = first + i * THREADS + threadIdx.x;
        if (row < len) has_some |= snapshots[row] != NONE;
      }
    }
    if (block_count(has_some) == 0) continue;
    for (uint32_t row = first; row < min_of(end, len); ++row) {
      uint32_t slot = snapshots[row];
      if (slot != NONE) found(row, slot);
    }
  }
}

// The sequence of a block, and the row of it that the block begins with: where it has whole sequences, the one of its
// number. Otherwise chunks have numbers, those of sequence i from begin / chunk + i on. So none has one of the next
// sequence's, and nothing is added up over those before it; some numbers have no rows.
DEVICE uint32_t sequence_of(const CausalConvArgs& args, uint32_t& first) {
  first = 0;
  if (args.num_seqs == 0) return blockIdx.y;
  const uint32_t* begins = args.states.q_indptr;
  uint32_t begun = 0;
  for (uint32_t base = 0; base < args.num_seqs; base += THREADS) {
    uint32_t seq = base + threadIdx.x;
    begun += block_count(seq < args.num_seqs && begins[seq] / args.chunk + seq <= blockIdx.y);
  }
  uint32_t seq = begun - 1;
  first = (blockIdx.y - begins[seq] / args.chunk - seq) * args.chunk;
  return seq;
}

// A thread makes a channel of some rows of a sequence; the first of its blocks keeps the states, too.
template <typename T>
DEVICE void causal_conv(const CausalConvArgs& args) {
  SHARED(float, shared);  // [taps - 1][THREADS]
  const States& states = args.states;
  uint32_t channel = blockIdx.x * THREADS + threadIdx.x, kept = args.taps - 1, first;
  uint32_t seq = sequence_of(args, first);
  uint32_t begin = states.q_indptr[seq], len = states.q_indptr[seq + 1] - begin;
  uint32_t last = min_of(first + args.chunk, len);
  bool has_states = first == 0, is_channel = channel < args.channels;
  if (first >= len && !has_states) return;

  ConvTensor tensor = args.tensors[0];
#pragma unroll
  for (uint32_t i = 1; i < CONV_TENSORS; ++i) {
    if (channel >= args.tensors[i].first_channel) tensor = args.tensors[i];
  }
  uint32_t within = channel - tensor.first_channel, head = within / tensor.head_channels;
  uint64_t place = tensor.first + head * tensor.head_stride + within % tensor.head_channels;
  const T* x = static_cast<const T*>(args.x) + begin * args.x_row_stride + channel;
  Channel<T> inputs{x, uint32_t(args.x_row_stride), shared + threadIdx.x, nullptr, tensor.head_channels, kept};
  uint32_t written = NONE, own = NONE;
  if (has_states) {
    written = states.write[seq];
    if (threadIdx.x < len) own = states.snapshot[begin + threadIdx.x];
    inputs.state = state_in<T>(states, args.fault, OP_CAUSAL_CONV, states.read[seq]);
    if (inputs.state) inputs.state += place;
  }
  T* out = static_cast<T*>(args.out) + uint64_t(begin) * args.channels + channel;
  const float* weight = args.weight + channel;
  if (is_channel && args.taps == 4) {
    convolve<4>(inputs, weight, out, args.channels, first, last);
  } else if (is_channel) {
    convolve_any(inputs, weight, out, args.channels, first, last);
  }
  if (!has_states) return;
  // The state after so many rows.
  auto keep = [&](uint32_t done, uint32_t slot) {
    T* state = is_channel ? state_in<T>(states, args.fault, OP_CAUSAL_CONV, slot) : nullptr;
    if (!state) return;
    for (uint32_t i = 0; i < kept; ++i) {
      state[place + i * tensor.head_channels] = from_float<T>(inputs.input(done + i));
    }
  };
  find_snapshots(own, states.snapshot + begin, len, [&](uint32_t row, uint32_t slot) { keep(row + 1, slot); });
  keep(len, written);
}

}  // namespace

// Grid: channels / THREADS, sequences or numbers of chunks. Shared memory: [taps - 1][THREADS] floats.
KERNEL(pd_causal_conv_bf16, CausalConvArgs, THREADS) { causal_conv<bf16>(args); }
KERNEL(pd_causal_conv_f32, CausalConvArgs, THREADS) { causal_conv<float>(args); }
