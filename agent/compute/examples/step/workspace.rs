//! Buffers of a step.

use crate::{HEAD_DIM, HIDDEN, INTERMEDIATE, QKV, VOCAB};
use pd_compute::cpu::{CpuBackend, CpuBuffer};
use pd_compute::{Backend, DType, SampleOut, SamplingRow, SamplingView};

pub(crate) struct Workspace {
    pub(crate) hidden: CpuBuffer,
    pub(crate) normed: CpuBuffer,
    pub(crate) qkv: CpuBuffer,
    pub(crate) attn: CpuBuffer,
    pub(crate) mlp: CpuBuffer,
    pub(crate) inv_freq: CpuBuffer,
    pub(crate) rope: CpuBuffer,
    pub(crate) logits: CpuBuffer,
    pub(crate) params: SamplingView<CpuBackend>,
    pub(crate) out: SampleOut<CpuBackend>,
}

impl Workspace {
    pub(crate) fn new(backend: &CpuBackend) -> Result<Self, pd_compute::ComputeError> {
        let floats = |name, len| backend.alloc(name, DType::F32, len);
        let words = |name, len| backend.alloc(name, DType::U32, len);
        let inv_freq = floats("inv_freq", HEAD_DIM / 2)?;
        backend.upload(&inv_freq, &[0.01f32; HEAD_DIM / 2]);
        let rows = words("sampling rows", 16 * SamplingRow::WORDS)?;
        backend.upload(&rows, &[SamplingRow::greedy(); 16]);
        Ok(Self {
            hidden: floats("hidden", 512 * HIDDEN)?,
            normed: floats("normed", 512 * HIDDEN)?,
            qkv: floats("qkv", 512 * QKV)?,
            attn: floats("attn", 512 * HIDDEN)?,
            mlp: floats("mlp", 512 * INTERMEDIATE)?,
            inv_freq,
            rope: floats("rope", 512 * HEAD_DIM)?,
            logits: floats("logits", 16 * VOCAB)?,
            params: SamplingView {
                rows,
                token_counts: words("token_counts", 2)?,
                logit_bias: words("logit_bias", 0)?,
                masks: words("masks", 0)?,
                asked_tokens: words("asked_tokens", 0)?,
            },
            out: SampleOut {
                tokens: words("tokens", 16)?,
                logprobs: floats("logprobs", 16)?,
                top_n_max: 1,
                top_tokens: words("top_tokens", 16)?,
                top_logprobs: floats("top_logprobs", 16)?,
                asked_max: 0,
                asked_logprobs: floats("asked_logprobs", 0)?,
            },
        })
    }
}
