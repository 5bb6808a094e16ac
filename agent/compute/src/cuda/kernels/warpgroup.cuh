// Products of a warpgroup (four warps, 64 rows) on Hopper's tensor cores. They run beside the threads: what they read
// and write is left alone until they are waited for.
#pragma once
#include "prelude.cuh"

// Set where there are such instructions, and in the emulation.
#if !defined(__CUDACC__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PD_HAS_WARPGROUPS
#endif

namespace pd {

constexpr uint32_t SWIZZLE_COLUMNS = 64;
constexpr uint32_t SWIZZLE_ALIGN = 1024;
// From one group of 8 rows to the next.
constexpr uint32_t SWIZZLE_GROUP_BYTES = 8 * 2 * SWIZZLE_COLUMNS;

// A matrix of bfloat16 in shared memory, as Hopper's 128-byte swizzle lays it out: rows of 64 elements, the 16-byte
// words of each in an order that its number gives; groups of 64 columns are planes. It may begin 16 elements further on in
// a row, or whole groups of 8 rows. Source: PTX ISA, matrix descriptors of wgmma.
struct SharedMatrix {
#ifdef __CUDACC__
  uint64_t descriptor;

  // The bytes between planes are only read where the product takes the matrix transposed.
  DEVICE SharedMatrix(const bf16* start, uint32_t plane_bytes) {
    constexpr uint64_t SWIZZLE_128 = 1ull << 62;
    uint64_t address = uint32_t(__cvta_generic_to_shared(start)) & 0x3ffff;
    descriptor = SWIZZLE_128 | uint64_t(SWIZZLE_GROUP_BYTES >> 4) << 32 | uint64_t(plane_bytes >> 4) << 16 | address >> 4;
  }
  // What begins so many elements on.
  DEVICE SharedMatrix from(uint32_t elements) const {
    SharedMatrix moved = *this;
    moved.descriptor += elements / 8;
    return moved;
  }
#else
  const bf16* start;
  uint32_t plane_bytes;

  SharedMatrix(const bf16* start, uint32_t plane_bytes) : start(start), plane_bytes(plane_bytes) {}
  SharedMatrix from(uint32_t elements) const { return SharedMatrix(start + elements, plane_bytes); }
#endif
};

// Where word `word` (8 elements) of row `row` begins.
HD uint32_t swizzled_128(uint32_t row, uint32_t word) { return row * SWIZZLE_COLUMNS + (word ^ row % 8) * 8; }

// The first place in shared memory, from `from` on, where such a matrix may begin.
DEVICE bf16* swizzle_aligned(bf16* from) {
#ifdef __CUDACC__
  uint32_t address = uint32_t(__cvta_generic_to_shared(from));
#else
  uint64_t address = reinterpret_cast<uint64_t>(from);
#endif
  return from + (-address & (SWIZZLE_ALIGN - 1)) / sizeof(bf16);
}

// Before products read what this thread has written or copied to shared memory: then a barrier.
DEVICE void publish_to_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Before the first product, and before the next one that reads registers which threads have written.
DEVICE void begin_products() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
DEVICE void commit_products() {
#ifdef __CUDACC__
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
#else
  emulation::commit_products();
#endif
}
// Until all but the newest PENDING groups of products are done; `results` are those of one of them.
template <int PENDING, int LEN>
DEVICE void wait_products(float (&results)[LEN]) {
#ifdef __CUDACC__
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
#endif
#pragma unroll
  for (int i = 0; i < LEN; ++i) asm volatile("" : "+f"(results[i])::"memory");
#else
  (void)results;
  emulation::wait_products(PENDING);
#endif
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define PD_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define PD_D16(i) PD_D4(i), PD_D4(i + 4), PD_D4(i + 8), PD_D4(i + 12)
#define PD_A "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])

DEVICE void wgmma_transposed(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool adds) {
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, adds, 1, 1, 1;\n}\n"
      : PD_D16(0), PD_D16(16)
      : PD_A, "l"(b), "r"(int32_t(adds)));
}

DEVICE void wgmma_transposed(float (&d)[64], const uint32_t (&a)[4], uint64_t b, bool adds) {
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, adds, 1, 1, 1;\n}\n"
      : PD_D16(0), PD_D16(16), PD_D16(32), PD_D16(48)
      : PD_A, "l"(b), "r"(int32_t(adds)));
}

DEVICE void wgmma(float (&d)[64], uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{\n.reg .pred adds;\nsetp.ne.b32 adds, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, adds, 1, 1, 0, 0;\n}\n"
      : PD_D16(0), PD_D16(16), PD_D16(32), PD_D16(48)
      : "l"(a), "l"(b), "r"(int32_t(adds)));
}
#undef PD_D4
#undef PD_D16
#undef PD_A
#endif

// d = a·b, or d += a·b, for a 64×16 and b 16×(2·LEN). d holds four results for every 8 columns, placed as in
// `mma_16x8x16`; a warp has 16 rows. The matrices are a and bᵀ: 16 columns of their rows.
template <int LEN>
DEVICE void multiply_warpgroup(float (&d)[LEN], const SharedMatrix& a, const SharedMatrix& b, bool adds) {
#ifdef __CUDACC__
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  wgmma(d, a.descriptor, b.descriptor, adds);
#endif
#else
  emulation::multiply_warpgroup(d, LEN, nullptr, reinterpret_cast<const uint16_t*>(a.start),
                                reinterpret_cast<const uint16_t*>(b.start), false, b.plane_bytes, adds);
#endif
}

// The same for rows of a in registers, placed as in `mma_16x8x16`, and b as it is: 16 of the matrix's rows.
template <int LEN>
DEVICE void multiply_warpgroup_transposed(float (&d)[LEN], const uint32_t (&a)[4], const SharedMatrix& b, bool adds) {
#ifdef __CUDACC__
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  wgmma_transposed(d, a, b.descriptor, adds);
#endif
#else
  emulation::multiply_warpgroup(d, LEN, a, nullptr, reinterpret_cast<const uint16_t*>(b.start), true, b.plane_bytes,
                                adds);
#endif
}

}  // namespace pd
