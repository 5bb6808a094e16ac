// Copying rows and pages by blocks of threads.
#pragma once
#include "args.cuh"

namespace pd {

constexpr uint32_t COPY_THREADS = 128;

// The block copies `bytes`, an even number, from and to places that are at least 2-byte aligned.
DEVICE void copy_block(void* to, const void* from, uint64_t bytes) {
  uint64_t all = uint64_t(to) | uint64_t(from) | bytes;
  if (all % 16 == 0) {
    auto src = reinterpret_cast<const Words4*>(from);
    auto dst = reinterpret_cast<Words4*>(to);
    for (uint64_t i = threadIdx.x; i < bytes / 16; i += blockDim.x) dst[i] = src[i];
  } else {
    auto src = reinterpret_cast<const uint16_t*>(from);
    auto dst = reinterpret_cast<uint16_t*>(to);
    for (uint64_t i = threadIdx.x; i < bytes / 2; i += blockDim.x) dst[i] = src[i];
  }
}

}  // namespace pd
