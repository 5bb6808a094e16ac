//! Sampling parameters as they lie in device memory, one row per sequence, and the noise.
//!
//! A row's result depends on its own logits and parameters only. The order is SGLang's: penalties
//! and bias on the logits, a mask, temperature, then top-k, top-p and min-p jointly on one distribution.
//! Logprobs are those of the logits after penalties, bias and mask, without temperature.

use crate::device_types::DeviceTypes;
use bytemuck::{Pod, Zeroable};

/// The token of a row that has no finite logit; its logprob is NaN. Also `SamplingRow::given` of a
/// row that draws.
pub const NO_TOKEN: u32 = u32::MAX;

/// `SamplingRow::mask` of a row that may draw every token.
pub const NO_MASK: u32 = u32::MAX;

/// Parameters of one row. Uploaded as they are; [`SamplingRow::WORDS`] `u32` each.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct SamplingRow {
    /// 0 is greedy.
    pub temperature: f32,
    /// Keep the `top_k` likeliest; 0 keeps all.
    pub top_k: u32,
    /// Keep those whose better-ranked ones have a mass of at most `top_p`; 1 keeps all.
    pub top_p: f32,
    /// Keep those at least `min_p` times as likely as the likeliest; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen in prompt or output; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted from tokens of the output.
    pub presence_penalty: f32,
    /// Subtracted from tokens of the output, once per occurrence.
    pub frequency_penalty: f32,
    /// Noise is a hash of (seed, choice, position, draw); see [`noise`].
    pub seed_lo: u32,
    pub seed_hi: u32,
    /// Index among the `n` choices of a request.
    pub choice: u32,
    /// Absolute position of the token being drawn.
    pub position: u32,
    /// Which draw at this position; 0 unless several are made (speculation).
    pub draw: u32,
    /// Not [`NO_TOKEN`]: nothing is drawn, this token and its logprob are the result.
    pub given: u32,
    /// The likeliest tokens to report, at most `SampleOut::top_n_max`.
    pub top_n: u32,
    /// Half-open range of `SamplingView::token_counts`.
    pub counts_begin: u32,
    pub counts_end: u32,
    /// Half-open range of `SamplingView::logit_bias`.
    pub bias_begin: u32,
    pub bias_end: u32,
    /// Index in `SamplingView::masks` of the tokens that the row may draw, or [`NO_MASK`].
    pub mask: u32,
}

/// A token that a penalised row has seen. A token occurs once per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct TokenCount {
    pub token: u32,
    /// Occurrences in the output; 0 for a token of the prompt only.
    pub output_count: u32,
}

/// Added to a token's logit; `f32::NEG_INFINITY` bans it (an end id while under `min_tokens`).
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct LogitBias {
    pub token: u32,
    pub bias: f32,
}

/// Inputs of `sample`, in `U32` buffers.
#[derive(Clone, Debug)]
pub struct SamplingView<B: DeviceTypes> {
    /// [`SamplingRow`] per row.
    pub rows: B::Buffer,
    /// [`TokenCount`]s of all rows.
    pub token_counts: B::Buffer,
    /// [`LogitBias`]es of all rows.
    pub logit_bias: B::Buffer,
    /// [`mask_words`] per mask. Token t is bit t % 32 of word t / 32; the others are banned.
    pub masks: B::Buffer,
    /// `[rows][SampleOut::asked_max]`: tokens whose logprobs the row reports, [`NO_TOKEN`] past its last.
    pub asked_tokens: B::Buffer,
}

/// Outputs of `sample`.
#[derive(Clone, Debug)]
pub struct SampleOut<B: DeviceTypes> {
    /// `U32 [rows]`, fit to be the next step's `token_ids`.
    pub tokens: B::Buffer,
    /// `F32 [rows]`.
    pub logprobs: B::Buffer,
    /// Columns of the two tables below; may be 0.
    pub top_n_max: usize,
    /// `U32 [rows][top_n_max]`, likeliest first, equal ones by id; [`NO_TOKEN`] past a row's `top_n`.
    pub top_tokens: B::Buffer,
    /// `F32 [rows][top_n_max]`.
    pub top_logprobs: B::Buffer,
    /// Columns of the table below and of `SamplingView::asked_tokens`; may be 0.
    pub asked_max: usize,
    /// `F32 [rows][asked_max]`: of each asked token; NaN for an id beyond the vocabulary and in rows without a token.
    pub asked_logprobs: B::Buffer,
}

// === impl SamplingRow ===

impl SamplingRow {
    /// `u32` words per row in `SamplingView::rows`.
    pub const WORDS: usize = size_of::<Self>() / size_of::<u32>();

    /// Takes the likeliest token, ties by lowest id, and touches nothing else.
    pub fn greedy() -> Self {
        Self {
            top_p: 1.0,
            repetition_penalty: 1.0,
            given: NO_TOKEN,
            mask: NO_MASK,
            ..Self::zeroed()
        }
    }

    pub fn set_seed(&mut self, seed: u64) {
        let [a, b, c, d, e, f, g, h] = seed.to_le_bytes();
        self.seed_lo = u32::from_le_bytes([a, b, c, d]);
        self.seed_hi = u32::from_le_bytes([e, f, g, h]);
    }

    pub fn seed(&self) -> u64 {
        u64::from(self.seed_hi) << 32 | u64::from(self.seed_lo)
    }
}

/// `u32` words of a mask over `vocab` tokens.
pub const fn mask_words(vocab: usize) -> usize {
    vocab.div_ceil(u32::BITS as usize)
}

/// Uniform in `[0, 1)` with 53 bits, a pure function of its arguments: two rounds of the
/// splitmix64 finaliser over the arguments, each keyed by an odd constant. Every backend draws
/// with exactly this, so a request's tokens depend on neither batch-mates nor process.
pub fn noise(seed: u64, choice: u32, position: u32, draw: u32) -> f64 {
    let place = u64::from(choice) << 32 | u64::from(position);
    let mut bits = mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
    bits = mix(bits ^ place.wrapping_mul(0xd1b5_4a32_d192_ed03));
    bits = mix(bits
        ^ u64::from(draw)
            .wrapping_add(1)
            .wrapping_mul(0x8cb9_2ba7_2f3d_8dd7));
    #[allow(clippy::cast_precision_loss, reason = "53 bits are exact in an f64")]
    let mantissa = (bits >> 11) as f64;
    mantissa / (1u64 << 53) as f64
}

/// The splitmix64 finaliser (Steele, Lea, Flood 2014): a bijection of 64 bits.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
