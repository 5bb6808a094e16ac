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
pub(crate) mod halves;
pub(crate) mod scalar;
pub(crate) mod sixteen;
pub(crate) mod tiles;

/// # Safety
/// Every method needs a processor with the implementation's instruction set. Loads and stores need
/// pointers valid for [`Simd::LANES`] elements of the type they name, at any alignment.
pub(crate) trait Simd: Copy {
    const LANES: usize;

    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(at: *const f32) -> Self;
    unsafe fn load_f16(at: *const u16) -> Self;
    unsafe fn load_bf16(at: *const u16) -> Self;
    /// Of lanes that hold two bfloat16 each, those in the low halves.
    unsafe fn even_bf16(self) -> Self;
    /// Those in the high halves.
    unsafe fn odd_bf16(self) -> Self;
    /// Values of E4M3 divided by 256: what f16 has of the same bits, moved to its places.
    unsafe fn load_f8_part(at: *const u8) -> Self;
    unsafe fn store(self, at: *mut f32);
    /// Rounded to the nearest f16, of two to the even one, as [`half::f16::from_f32`] does.
    unsafe fn store_f16(self, at: *mut u16);
    /// Rounded to the nearest bfloat16 likewise, as [`half::bf16::from_f32`] does.
    unsafe fn store_bf16(self, at: *mut u16);
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

/// Codes of packed weights, and sums of their products with integers.
///
/// # Safety
/// As [`Simd`].
pub(crate) trait Codes: Simd {
    /// As many lanes of 32 bits: packed codes, pairs of bf16 or of i16, or sums of the products of those.
    type Words: Copy;

    unsafe fn load_i8(at: *const u8) -> Self;
    unsafe fn load_u8(at: *const u8) -> Self;

    unsafe fn load_words(at: *const u8) -> Self::Words;
    unsafe fn store_words(words: Self::Words, at: *mut u8);
    unsafe fn splat_word(word: u32) -> Self::Words;
    unsafe fn shift_left<const BITS: u32>(words: Self::Words) -> Self::Words;
    unsafe fn shift_right<const BITS: u32>(words: Self::Words) -> Self::Words;
    unsafe fn and(a: Self::Words, b: Self::Words) -> Self::Words;
    unsafe fn or(a: Self::Words, b: Self::Words) -> Self::Words;
    /// The table's value for each byte, which is below 16.
    unsafe fn look_up(table: &[i8; 16], bytes: Self::Words) -> Self::Words;
    /// Bytes 0 and 2 of each word as two i16.
    unsafe fn even_bytes(words: Self::Words) -> Self::Words;
    /// Bytes 1 and 3 of each word as two i16.
    unsafe fn odd_bytes(words: Self::Words) -> Self::Words;
    /// `sums`, each with the two products of the i16 in its place of `a` and `b`.
    unsafe fn add_products(sums: Self::Words, a: Self::Words, b: Self::Words) -> Self::Words;
    /// Of i32, rounded to the nearest, of two to the even one.
    unsafe fn to_f32(sums: Self::Words) -> Self;
    /// The low half of each word, as bf16.
    unsafe fn bf16_low(words: Self::Words) -> Self;
    unsafe fn bf16_high(words: Self::Words) -> Self;
}

#[cfg(test)]
mod tests;
