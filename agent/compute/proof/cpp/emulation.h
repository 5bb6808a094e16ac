// What the kernels' prelude takes from CUDA, for the host: a block's threads are fibres of the calling thread, run in
// turn until each waits for the others.
//
// It is made to find faults: shared memory begins as NaN and ends at a page that may not be touched, copies arrive only
// when they are waited for, launches run threads and blocks in ascending and descending order by turns, and a barrier
// that not all reach is an error, as is a thread that never waits for the kernels before.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#define HD inline
#define DEVICE inline
#define KERNEL(name, Args, threads) KERNEL_OF(name, Args, threads, ::emulation::await_kernels_before())
#define KERNEL_EARLY(name, Args, threads) KERNEL_OF(name, Args, threads, (void)0)
#define KERNEL_OF(name, Args, threads, begin)                                       \
  static void name(const Args& args);                                               \
  static const ::emulation::Registration name##_registration{                       \
      #name, sizeof(Args), threads, [](const void* args) {                          \
        begin;                                                                      \
        name(*static_cast<const Args*>(args));                                      \
      }};                                                                           \
  static void name(const Args& args)
#define SHARED(type, name) type* name = reinterpret_cast<type*>(::emulation::shared_memory())

namespace emulation {

struct Index {
  uint32_t x, y, z;
};

struct Registration {
  const char* name;
  size_t args_bytes;
  uint32_t threads;
  void (*run)(const void* args);
  const Registration* next;
  Registration(const char* name, size_t args_bytes, uint32_t threads, void (*run)(const void*));
};

// Of the running fibre and its launch.
const Index& thread_index();
const Index& block_index();
const Index& block_size();
const Index& grid_size();

void sync_block();
void sync_warp();
uint32_t count_block(bool says);
void* shared_memory();

uint16_t round_to_bf16(float value);
uint32_t shuffle(uint32_t value, uint32_t source_lane);
void mma_16x8x16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void load_matrices(uint32_t (&r)[4], const uint16_t* row);
void load_matrices_transposed(uint32_t (&r)[4], const uint16_t* row);
void multiply_warpgroup(float* d, int len, const uint32_t* a, const uint16_t* left, const uint16_t* matrix,
                        bool transposed, uint32_t plane_bytes, bool adds);
void commit_products();
void wait_products(int pending);
void copy_async(void* to, const void* from, bool wanted);
void commit_copies();
void wait_copies(int pending);
void await_kernels_before();
void check_readable(const void* from, size_t bytes);

}  // namespace emulation

#define threadIdx (::emulation::thread_index())
#define blockIdx (::emulation::block_index())
#define blockDim (::emulation::block_size())
#define gridDim (::emulation::grid_size())
inline void __syncthreads() { ::emulation::sync_block(); }
