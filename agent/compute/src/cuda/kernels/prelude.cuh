// What every kernel stands on: element types, vector loads, warp collectives, tensor-core and copy wrappers.
//
// A kernel is written once and compiled twice: by nvcc for the GPU, and by any C++17 compiler against the emulation,
// which runs a block's threads as fibres (agent/compute/proof). So kernels use nothing but what stands here.
// Warp collectives are called by all 32 lanes of a warp.
#pragma once
#include <stdint.h>

#ifdef __CUDACC__
#define HD __host__ __device__ __forceinline__
#define DEVICE __device__ __forceinline__
// KERNEL(name, Args, threads) { body using `args` }: an entry that takes one struct by value.
#define KERNEL(name, Args, threads) KERNEL_OF(name, Args, threads, ::pd::await_kernels_before())
// One whose body calls `await_kernels_before` itself, in every thread, and touches nothing before it but weights and what
// the host uploads for a step: no kernel of the step writes those.
#define KERNEL_EARLY(name, Args, threads) KERNEL_OF(name, Args, threads, (void)0)
#define KERNEL_OF(name, Args, threads, begin)                                                     \
  DEVICE void name##_body(const Args& args);                                                      \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Args args) { \
    ::pd::start_next_kernel();                                                                    \
    begin;                                                                                        \
    name##_body(args);                                                                            \
  }                                                                                               \
  DEVICE void name##_body(const Args& args)
// The block's dynamic shared memory, 16-byte aligned.
#define SHARED(type, name) \
  extern __shared__ __align__(16) unsigned char pd_shared[]; \
  type* name = reinterpret_cast<type*>(pd_shared)
#else
#include "emulation.h"
#endif

namespace pd {

constexpr unsigned WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr uint32_t NONE = 0xffffffffu;  // NO_SLOT, NO_ROW, NO_TOKEN
constexpr float LOG2_E = 1.44269504088896340736f;

struct bf16 {
  uint16_t bits;
};

struct alignas(16) Words4 {
  uint32_t w[4];
};

// --- Conversions. ---

DEVICE float bits_to_float(uint32_t bits) {
#ifdef __CUDACC__
  return __uint_as_float(bits);
#else
  float value;
  memcpy(&value, &bits, 4);
  return value;
#endif
}

DEVICE uint32_t float_to_bits(float value) {
#ifdef __CUDACC__
  return __float_as_uint(value);
#else
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
#endif
}

// Bits that order as the floats do, −0 as 0; NaN is below everything.
DEVICE uint32_t ordered(float value) {
  uint32_t bits = float_to_bits(value + 0.0f);
  if (value != value) return 0;
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
DEVICE float unordered(uint32_t bits) { return bits_to_float(bits & 0x80000000u ? bits ^ 0x80000000u : ~bits); }

DEVICE float to_float(float value) { return value; }
DEVICE float to_float(bf16 value) { return bits_to_float(uint32_t(value.bits) << 16); }

// Two bf16 in a word, the first in the lower half.
DEVICE uint32_t pack_bf16(float first, float second) {
#ifdef __CUDACC__
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  return packed;
#else
  return uint32_t(emulation::round_to_bf16(first)) | uint32_t(emulation::round_to_bf16(second)) << 16;
#endif
}

template <typename T>
DEVICE T from_float(float value);
template <>
DEVICE float from_float<float>(float value) {
  return value;
}
template <>
DEVICE bf16 from_float<bf16>(float value) {
  return bf16{uint16_t(pack_bf16(value, 0.0f))};
}

// Eight consecutive elements, loaded and stored as one or two 16-byte words.
template <typename T>
struct Pack8;
template <>
struct Pack8<float> {
  Words4 words[2];
  DEVICE float get(int i) const { return bits_to_float(words[i / 4].w[i % 4]); }
  DEVICE void set2(int i, float a, float b) {
    words[i / 4].w[i % 4] = float_to_bits(a);
    words[i / 4].w[i % 4 + 1] = float_to_bits(b);
  }
};
template <>
struct Pack8<bf16> {
  Words4 words[1];
  DEVICE float get(int i) const {
    uint32_t word = words[0].w[i / 2];
    return bits_to_float(i % 2 ? word & 0xffff0000u : word << 16);
  }
  DEVICE void set2(int i, float a, float b) { words[0].w[i / 2] = pack_bf16(a, b); }
};

template <typename T>
DEVICE Pack8<T> load8(const T* from) {
  return *reinterpret_cast<const Pack8<T>*>(from);
}
template <typename T>
DEVICE void store8(T* to, const Pack8<T>& pack) {
  *reinterpret_cast<Pack8<T>*>(to) = pack;
}

// --- Arithmetic. ---

DEVICE float exp2_fast(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

DEVICE float inv_sqrt(float x) {
#ifdef __CUDACC__
  return 1.0f / sqrtf(x);
#else
  return 1.0f / std::sqrt(x);
#endif
}

DEVICE float silu(float x) { return x / (1.0f + expf(-x)); }
DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
// x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))
DEVICE float gelu_tanh(float x) {
  return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}
DEVICE float soft_cap(float x, float cap) { return cap * tanhf(x / cap); }
// ln(1 + eˣ)
DEVICE float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

template <typename T>
HD T min_of(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
HD T max_of(T a, T b) {
  return a < b ? b : a;
}
HD uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

// The least n for which 2^n is not below `value`, which is not 0.
DEVICE uint32_t ceil_log2(uint32_t value) {
#ifdef __CUDACC__
  return 32 - __clz(int(value - 1));
#else
  return value == 1 ? 0 : 32 - uint32_t(__builtin_clz(value - 1));
#endif
}

// High 32 bits of a 64-bit product.
DEVICE uint32_t mul_high(uint32_t a, uint32_t b) {
#ifdef __CUDACC__
  return __umulhi(a, b);
#else
  return uint32_t(uint64_t(a) * b >> 32);
#endif
}
// High 64 bits of a 128-bit product.
DEVICE uint64_t mul_high(uint64_t a, uint64_t b) {
#ifdef __CUDACC__
  return __umul64hi(a, b);
#else
  return uint64_t((unsigned __int128)a * b >> 64);
#endif
}

// --- Warp collectives. ---

DEVICE uint32_t lane_id() { return threadIdx.x % WARP; }
DEVICE uint32_t warp_id() { return threadIdx.x / WARP; }

DEVICE void warp_sync() {
#ifdef __CUDACC__
  __syncwarp();
#else
  emulation::sync_warp();
#endif
}

DEVICE uint32_t shuffle_xor(uint32_t value, int mask) {
#ifdef __CUDACC__
  return __shfl_xor_sync(ALL_LANES, value, mask);
#else
  return emulation::shuffle(value, lane_id() ^ mask);
#endif
}
DEVICE float shuffle_xor(float value, int mask) { return bits_to_float(shuffle_xor(float_to_bits(value), mask)); }
DEVICE uint64_t shuffle_xor(uint64_t value, int mask) {
  uint32_t low = shuffle_xor(uint32_t(value), mask), high = shuffle_xor(uint32_t(value >> 32), mask);
  return uint64_t(high) << 32 | low;
}

// What lane `source` has.
DEVICE uint32_t shuffle_from(uint32_t value, uint32_t source) {
#ifdef __CUDACC__
  return __shfl_sync(ALL_LANES, value, int(source));
#else
  return emulation::shuffle(value, source);
#endif
}
DEVICE uint64_t shuffle_from(uint64_t value, uint32_t source) {
  uint32_t low = shuffle_from(uint32_t(value), source), high = shuffle_from(uint32_t(value >> 32), source);
  return uint64_t(high) << 32 | low;
}

// Over groups of `width` consecutive lanes (a power of two).
template <int WIDTH = 32>
DEVICE float warp_sum(float value) {
#pragma unroll
  for (int mask = WIDTH / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}
template <int WIDTH = 32>
DEVICE float warp_max(float value) {
#pragma unroll
  for (int mask = WIDTH / 2; mask > 0; mask /= 2) value = fmaxf(value, shuffle_xor(value, mask));
  return value;
}

// Over all lanes, which know it then.
DEVICE uint32_t warp_largest(uint32_t value) {
#ifdef __CUDACC__
  return __reduce_max_sync(ALL_LANES, value);
#else
  for (int mask = WARP / 2; mask > 0; mask /= 2) value = max_of(value, shuffle_xor(value, mask));
  return value;
#endif
}
DEVICE uint32_t warp_least(uint32_t value) { return ~warp_largest(~value); }

// Whether some lane says so.
DEVICE bool warp_any(bool says) {
#ifdef __CUDACC__
  return __any_sync(ALL_LANES, says);
#else
  return warp_max(says ? 1.0f : 0.0f) > 0.0f;
#endif
}

// How many of the block's threads say so; a barrier too.
DEVICE uint32_t block_count(bool says) {
#ifdef __CUDACC__
  return uint32_t(__syncthreads_count(says));
#else
  return emulation::count_block(says);
#endif
}

// --- Tensor cores. ---

// d += a·b for a 16×16 (rows g and g+8 of lane 4g+t), b 16×8 (column g), d 16×8 in f32.
DEVICE void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#ifdef __CUDACC__
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  emulation::mma_16x8x16(d, a, b);
#endif
}

// Four 8×8 matrices of 16-bit elements: lane i gives the address of row i % 8 of matrix i / 8, and gets row i / 4, columns
// 2·(i % 4) and the next, of each.
DEVICE void load_matrices(uint32_t (&r)[4], const bf16* row) {
#ifdef __CUDACC__
  uint32_t address = uint32_t(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
#else
  emulation::load_matrices(r, reinterpret_cast<const uint16_t*>(row));
#endif
}

// Four 8×8 matrices of 16-bit elements, transposed: lane i gives the address of row i % 8 of matrix i / 8, and gets
// column i / 4, rows 2·(i % 4) and the next, of each.
DEVICE void load_matrices_transposed(uint32_t (&r)[4], const bf16* row) {
#ifdef __CUDACC__
  uint32_t address = uint32_t(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
#else
  emulation::load_matrices_transposed(r, reinterpret_cast<const uint16_t*>(row));
#endif
}

// --- Copies from global to shared memory that run beside the thread. ---

// 16 bytes; zeros when not `wanted`, and then `from` is not read.
DEVICE void copy_async(void* to, const void* from, bool wanted) {
#ifdef __CUDACC__
  uint32_t address = uint32_t(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(from), "r"(wanted ? 16 : 0)
               : "memory");
#else
  emulation::copy_async(to, from, wanted);
#endif
}
// The same by way of the L1 cache: for what several blocks of a multiprocessor read.
DEVICE void copy_async_cached(void* to, const void* from, bool wanted) {
#ifdef __CUDACC__
  uint32_t address = uint32_t(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(from), "r"(wanted ? 16 : 0)
               : "memory");
#else
  emulation::copy_async(to, from, wanted);
#endif
}
DEVICE void commit_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulation::commit_copies();
#endif
}
// Until all but the newest `PENDING` groups of this thread are there.
template <int PENDING>
DEVICE void wait_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#else
  emulation::wait_copies(PENDING);
#endif
}

// --- Kernels that overlap: on devices that can, a kernel's blocks start while those of the one before it end. ---

// Lets the next kernel's blocks start as soon as there is room beside this one's.
DEVICE void start_next_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Until all kernels before this one have ended and what they wrote is there. A kernel ends after those before it, since
// every one waits; so what holds of the last one holds of all.
DEVICE void await_kernels_before() {
#ifndef __CUDACC__
  emulation::await_kernels_before();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Brings weights to the L2 cache, without waiting: both numbers are multiples of 16.
DEVICE void prefetch_weights(const bf16* from, uint32_t bytes) {
#ifndef __CUDACC__
  emulation::check_readable(from, bytes);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" : : "l"(from), "r"(bytes) : "memory");
#endif
}

// --- Memory that blocks share. ---

DEVICE uint32_t atomic_add(uint32_t* place, uint32_t value) {
#ifdef __CUDACC__
  return atomicAdd(place, value);
#else
  uint32_t before = *place;
  *place += value;
  return before;
#endif
}
DEVICE void atomic_add(uint64_t* place, uint64_t value) {
#ifdef __CUDACC__
  atomicAdd(reinterpret_cast<unsigned long long*>(place), (unsigned long long)value);
#else
  *place += value;
#endif
}
// A thread that sees later writes of this one also sees what it wrote before.
DEVICE void fence_device() {
#ifdef __CUDACC__
  __threadfence();
#endif
}

}  // namespace pd
