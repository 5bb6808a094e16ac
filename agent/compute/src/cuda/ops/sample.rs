//! The sample op: a block per row.

use super::super::backend::{CudaBackend, Shared, to_u32};
use super::super::driver::DriverError;
use super::super::kernels::{Kernel, SAMPLE_SHARED, SampleArgs};
use crate::buffer::DeviceBuffer;
use crate::dtype::DType;
use crate::ops::Sample;
use crate::sampling::SamplingRow;

pub(in crate::cuda) fn sample(
    shared: &Shared,
    op: &Sample<'_, CudaBackend>,
) -> Result<(), DriverError> {
    let Sample {
        logits,
        vocab,
        rows,
        params,
        out,
    } = *op;
    assert!(vocab > 0, "sample: a vocabulary of nothing");
    let (words, floats) = ([DType::U32], [DType::F32]);
    let top = rows * out.top_n_max;
    let args = SampleArgs {
        logits: logits.addr_of("logits", &floats, rows * vocab),
        rows: params
            .rows
            .addr_of("sampling rows", &words, rows * SamplingRow::WORDS),
        token_counts: params.token_counts.addr_of("token_counts", &words, 0),
        logit_bias: params.logit_bias.addr_of("logit_bias", &words, 0),
        tokens: out.tokens.addr_of("sampled tokens", &words, rows),
        logprobs: out.logprobs.addr_of("logprobs", &floats, rows),
        top_tokens: out.top_tokens.addr_of("top_tokens", &words, top),
        top_logprobs: out.top_logprobs.addr_of("top_logprobs", &floats, top),
        vocab: to_u32(vocab),
        top_n_max: to_u32(out.top_n_max),
        // Two words per entry.
        num_token_counts: to_u32(params.token_counts.len() / 2),
        num_logit_bias: to_u32(params.logit_bias.len() / 2),
    };
    shared.launch(Kernel::Sample, [to_u32(rows), 1, 1], SAMPLE_SHARED, &args)
}
