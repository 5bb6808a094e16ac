//! The sample op: two kernels, a block for each split of a row.

use crate::buffer::DeviceBuffer;
use crate::cuda::driver::DriverError;
use crate::cuda::handle::CudaBackend;
use crate::cuda::kernels::{
    Kernel, SAMPLE_LISTED, SAMPLE_PARTIAL, SAMPLE_PARTIALS_SHARED, SAMPLE_SHARED, SAMPLE_SPLIT,
    SampleArgs, to_u32,
};
use crate::cuda::shared::Shared;
use crate::dtype::DType;
use crate::ops::Sample;
use crate::sampling::{SamplingRow, mask_words};

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
    if rows == 0 {
        return Ok(());
    }
    let (words, floats) = ([DType::U32], [DType::F32]);
    let logits_addr = logits.addr_of("logits", &floats, rows * vocab);
    let (top, asked) = (rows * out.top_n_max, rows * out.asked_max);
    let splits = vocab.div_ceil(SAMPLE_SPLIT);
    // For all rows that the logits have room for: then it is made once, and no recorded step ever moves it.
    let rows_max = logits.len() / vocab;
    // A listed token has two words.
    let listed = rows_max * SAMPLE_LISTED * 2;
    let partials = rows_max * splits * SAMPLE_PARTIAL / 4;
    let scratch = shared.scratch(&shared.sampling, listed + partials)?;
    let args = SampleArgs {
        logits: logits_addr,
        rows: params
            .rows
            .addr_of("sampling rows", &words, rows * SamplingRow::WORDS),
        token_counts: params.token_counts.addr_of("token_counts", &words, 0),
        logit_bias: params.logit_bias.addr_of("logit_bias", &words, 0),
        masks: params.masks.addr_of("masks", &words, 0),
        asked_tokens: params.asked_tokens.addr_of("asked_tokens", &words, asked),
        tokens: out.tokens.addr_of("sampled tokens", &words, rows),
        logprobs: out.logprobs.addr_of("logprobs", &floats, rows),
        top_tokens: out.top_tokens.addr_of("top_tokens", &words, top),
        top_logprobs: out.top_logprobs.addr_of("top_logprobs", &floats, top),
        asked_logprobs: out.asked_logprobs.addr_of("asked_logprobs", &floats, asked),
        partials: scratch + 4 * listed as u64,
        listed: scratch,
        vocab: to_u32(vocab),
        top_n_max: to_u32(out.top_n_max),
        // Two words per entry.
        num_token_counts: to_u32(params.token_counts.len() / 2),
        num_logit_bias: to_u32(params.logit_bias.len() / 2),
        num_masks: to_u32(params.masks.len() / mask_words(vocab)),
        asked_max: to_u32(out.asked_max),
    };
    let grid = [to_u32(splits), to_u32(rows), 1];
    shared.launch(Kernel::SamplePartials, grid, SAMPLE_PARTIALS_SHARED, &args)?;
    shared.launch(Kernel::Sample, grid, SAMPLE_SHARED, &args)
}
