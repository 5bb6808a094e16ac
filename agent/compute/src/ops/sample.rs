//! One token per row of logits.

use crate::buffer::DeviceBuffer;
use crate::device_types::DeviceTypes;
use crate::dtype::DType;
use crate::sampling::{SampleOut, SamplingRow, SamplingView};

/// Draws a token per row; see [`crate::sampling`].
#[derive(Debug)]
pub struct Sample<'a, B: DeviceTypes> {
    /// `F32 [rows][vocab]`; penalties, bias and masks are applied in place.
    pub logits: &'a B::Buffer,
    pub vocab: usize,
    pub rows: usize,
    pub params: &'a SamplingView<B>,
    pub out: &'a SampleOut<B>,
}

// === impl Sample ===

impl<B: DeviceTypes> Sample<'_, B> {
    /// # Panics
    /// When a buffer is too small or of another dtype.
    pub(crate) fn check(&self) {
        let Self {
            logits,
            vocab,
            rows,
            params,
            out,
        } = *self;
        assert!(vocab > 0, "sample: a vocabulary of nothing");
        let (floats, words) = ([DType::F32], [DType::U32]);
        let (top, asked) = (rows * out.top_n_max, rows * out.asked_max);
        for (what, buffer, dtypes, len) in [
            ("logits", logits, &floats, rows * vocab),
            (
                "sampling rows",
                &params.rows,
                &words,
                rows * SamplingRow::WORDS,
            ),
            ("token_counts", &params.token_counts, &words, 0),
            ("logit_bias", &params.logit_bias, &words, 0),
            ("masks", &params.masks, &words, 0),
            ("asked_tokens", &params.asked_tokens, &words, asked),
            ("sampled tokens", &out.tokens, &words, rows),
            ("logprobs", &out.logprobs, &floats, rows),
            ("top_tokens", &out.top_tokens, &words, top),
            ("top_logprobs", &out.top_logprobs, &floats, top),
            ("asked_logprobs", &out.asked_logprobs, &floats, asked),
        ] {
            buffer.expect_elements(what, dtypes, len);
        }
    }
}
