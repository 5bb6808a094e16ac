//! A vector of f32 lanes, as far as packed linears need one. A kernel is written once over
//! [`Simd`] and instantiated inside functions that enable the instruction set; everything here is
//! `inline(always)`, so no vector crosses a call. All implementations return the same bits.

pub(crate) mod avx2;
pub(crate) mod avx512;
pub(crate) mod scalar;

/// # Safety
/// Every method needs a processor with the implementation's instruction set. Loads and stores need
/// pointers valid for [`Simd::LANES`] elements of the type they name, at any alignment.
pub(crate) trait Simd: Copy {
    const LANES: usize;
    /// As many lanes of u32: packed codes, or pairs of bf16.
    type Words: Copy;

    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(at: *const f32) -> Self;
    unsafe fn store(self, at: *mut f32);
    unsafe fn add(self, b: Self) -> Self;
    unsafe fn mul(self, b: Self) -> Self;
    unsafe fn div(self, b: Self) -> Self;
    /// `self · b + c`, rounded once.
    unsafe fn fma(self, b: Self, c: Self) -> Self;
    unsafe fn exp(self) -> Self;

    unsafe fn load_f16(at: *const u8) -> Self;
    unsafe fn load_i8(at: *const u8) -> Self;
    unsafe fn load_u8(at: *const u8) -> Self;

    unsafe fn load_words(at: *const u8) -> Self::Words;
    unsafe fn shift_right<const BITS: u32>(words: Self::Words) -> Self::Words;
    /// The four bits from bit `AT` on, 0..16.
    unsafe fn nibble<const AT: u32>(words: Self::Words) -> Self;
    /// The four bits from bit `AT` on, less 8.
    unsafe fn nibble_less_8<const AT: u32>(words: Self::Words) -> Self;
    /// Four bits from `low` and two above them from `high`, less 32.
    unsafe fn six_bits_less_32(low: Self::Words, high: Self::Words) -> Self;
    /// The low half of each word, as bf16.
    unsafe fn bf16_low(words: Self::Words) -> Self;
    unsafe fn bf16_high(words: Self::Words) -> Self;
}
