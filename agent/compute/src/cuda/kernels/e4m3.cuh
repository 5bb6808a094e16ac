// E4M3: a byte of a sign, four bits of exponent (less 7) and three of mantissa, without infinities; all ones is NaN. Pools
// of keys and values have it, bit for bit as e4m3.rs says.
//
// An f16 with a code's bits in its places is the code's value divided by F8_OVER_F16. bfloat16 has these exactly, too.
#pragma once
#include "args.cuh"

namespace pd {

struct f8 {
  uint8_t bits;
};

constexpr float F8_OVER_F16 = 256.0f;
constexpr float F8_MAX = 448.0f;

struct alignas(8) Words2 {
  uint32_t w[2];
};

DEVICE float half_to_float(uint16_t bits) {
#ifdef __CUDACC__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  uint32_t size = bits & 0x7fff, sign = uint32_t(bits & 0x8000) << 16;
  // 2^112 moves the exponent, below the normal numbers, too.
  float value = bits_to_float(size << 13) * bits_to_float(239u << 23);
  return bits_to_float(sign | (size >= 0x7c00 ? 0x7f800000u | size << 13 : float_to_bits(value)));
#endif
}

// The two codes in the lower half of a word as two f16, the first in the lower half.
DEVICE uint32_t f8_pair(uint32_t codes) {
  uint32_t spread = (codes & 0xff) << 8 | (codes & 0xff00) << 16;
  uint32_t moved = (spread & 0x80008000u) | (spread & 0x7f007f00u) >> 1;
  // Only where all bits are ones a carry makes the exponent that of f16's NaN.
  return moved | ((moved + 0x00800080u) & 0x40004000u);
}

// Values divided by F8_OVER_F16.
template <>
struct Pack8<f8> {
  Words2 words;
  DEVICE float get(int i) const {
    uint32_t pair = f8_pair(words.w[i / 4] >> (i % 4 / 2 * 16));
    return half_to_float(uint16_t(pair >> (i % 2 * 16)));
  }
  // As bfloat16, in which each is exact.
  DEVICE Words4 expanded() const {
    Words4 all;
#pragma unroll
    for (int i = 0; i < 4; ++i) all.w[i] = pack_bf16(get(2 * i), get(2 * i + 1));
    return all;
  }
};

// The nearest code, of two that are equally near the even one; that of ± F8_MAX beyond it, and NaN of NaN.
DEVICE f8 to_f8(float value) {
  uint32_t bits = float_to_bits(value), size = bits & 0x7fffffffu, code;
  float magnitude = bits_to_float(size);
  if (value != value) {
    code = 0x7f;
  } else if (magnitude >= F8_MAX) {
    code = 0x7e;
  } else if (magnitude < 1.0f / 64.0f) {
    code = uint32_t(rintf(magnitude * 512.0f));
  } else {
    // The low 20 bits go; a half of them goes to the even one. A carry makes the next exponent.
    code = ((size + 0x7ffffu + (size >> 20 & 1)) >> 20) - (120u << 3);
  }
  return f8{uint8_t(code | (bits >> 24 & 0x80))};
}

// Whether a pool of such elements has scales.
template <typename Kv>
constexpr bool HAS_SCALES = false;
template <>
constexpr bool HAS_SCALES<f8> = true;

// Writes an element of a pool; whether it lies beyond what that holds.
template <typename Kv>
DEVICE bool store_kv(Kv* to, float value, float scale) {
  if constexpr (HAS_SCALES<Kv>) {
    float scaled = value / scale;
    *to = to_f8(scaled);
    return fabsf(scaled) > F8_MAX;
  } else {
    *to = from_float<Kv>(value);
    return false;
  }
}

// Adds up what the lanes of a warp found to lie beyond.
template <typename Kv>
DEVICE void count_saturated(const KvLayer& kv, uint32_t beyond) {
  if constexpr (HAS_SCALES<Kv>) {
#pragma unroll
    for (int mask = WARP / 2; mask > 0; mask /= 2) beyond += shuffle_xor(beyond, mask);
    if (lane_id() == 0 && beyond > 0) atomic_add(kv.saturated, uint64_t(beyond));
  }
}

}  // namespace pd
