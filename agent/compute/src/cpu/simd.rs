//! Vectors of f32. A kernel is written once over a trait and instantiated inside functions that
//! enable the instruction set; everything here is `inline(always)`, so no vector crosses a call.
//! All implementations return the same bits.
//!
//! [`Simd`] is what every vector can do: the native ones of [`avx512`], [`avx2`] and [`scalar`], and
//! [`sixteen::Pair`], two of eight lanes as one of sixteen. Packed linears take native vectors and
//! their [`Codes`], all other ops sixteen lanes ([`sixteen::Sixteen`], started by [`dispatch`]).

pub(crate) mod activation;
pub(crate) mod avx2;
pub(crate) mod avx512;
pub(crate) mod dispatch;
pub(crate) mod exp;
pub(crate) mod scalar;
pub(crate) mod sixteen;

/// # Safety
/// Every method needs a processor with the implementation's instruction set. Loads and stores need
/// pointers valid for [`Simd::LANES`] elements of the type they name, at any alignment.
pub(crate) trait Simd: Copy {
    const LANES: usize;

    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(at: *const f32) -> Self;
    unsafe fn load_f16(at: *const u16) -> Self;
    unsafe fn load_bf16(at: *const u16) -> Self;
    /// Values of E4M3 divided by 256: what f16 has of the same bits, moved to its places.
    unsafe fn load_f8_part(at: *const u8) -> Self;
    unsafe fn store(self, at: *mut f32);
    unsafe fn add(self, b: Self) -> Self;
    unsafe fn sub(self, b: Self) -> Self;
    unsafe fn mul(self, b: Self) -> Self;
    unsafe fn div(self, b: Self) -> Self;
    /// `self · b + c`, rounded once.
    unsafe fn fma(self, b: Self, c: Self) -> Self;
    /// The larger; `b` where either is NaN.
    unsafe fn max(self, b: Self) -> Self;
    unsafe fn exp(self) -> Self;
    /// `less` in lanes that are below `bound`, `other` in the rest and where either is NaN.
    unsafe fn select_below(self, bound: Self, less: Self, other: Self) -> Self;
}

/// Expanding the codes of packed weights.
///
/// # Safety
/// As [`Simd`].
pub(crate) trait Codes: Simd {
    /// As many lanes of u32: packed codes, or pairs of bf16.
    type Words: Copy;

    unsafe fn load_i8(at: *const u8) -> Self;
    unsafe fn load_u8(at: *const u8) -> Self;

    unsafe fn load_words(at: *const u8) -> Self::Words;
    unsafe fn shift_left<const BITS: u32>(words: Self::Words) -> Self::Words;
    unsafe fn shift_right<const BITS: u32>(words: Self::Words) -> Self::Words;
    /// The four bits from bit `AT` on, 0..16.
    unsafe fn nibble<const AT: u32>(words: Self::Words) -> Self;
    /// The four bits from bit `AT` on, less 8.
    unsafe fn nibble_less_8<const AT: u32>(words: Self::Words) -> Self;
    /// The four bits from bit `AT` on, as E2M1.
    unsafe fn e2m1<const AT: u32>(words: Self::Words) -> Self;
    /// Four codes of six bits in the bytes of each word: the low four bits of `low`'s bytes, and of
    /// `high`'s the two above those.
    unsafe fn six_bit_codes(low: Self::Words, high: Self::Words) -> Self::Words;
    /// The byte from bit `AT` on.
    unsafe fn byte<const AT: u32>(words: Self::Words) -> Self;
    /// The low half of each word, as bf16.
    unsafe fn bf16_low(words: Self::Words) -> Self;
    unsafe fn bf16_high(words: Self::Words) -> Self;
}

#[cfg(test)]
mod tests;
