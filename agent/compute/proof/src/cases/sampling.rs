//! The sample op.

use super::{Subject, values};
use pd_compute::sampling::SamplingRow;
use pd_compute::{Backend, DType, LogitBias, Sample, SampleOut, SamplingView, TokenCount};

/// Rows to be sampled, each with logits of its own.
#[derive(Clone, Debug)]
pub struct SampleCase {
    pub rows: Vec<SamplingRow>,
    pub vocab: usize,
    pub counts: Vec<TokenCount>,
    pub bias: Vec<LogitBias>,
    pub top_n_max: usize,
    /// Logits lie in ± this.
    pub spread: f32,
    pub seed: u64,
}

/// What a backend made of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    pub tokens: Vec<u32>,
    pub logprobs: Vec<f32>,
    pub top_tokens: Vec<u32>,
    pub top_logprobs: Vec<f32>,
}

// === impl SampleCase ===

impl SampleCase {
    /// Coarse ones: equal logits occur.
    pub fn logits(&self) -> Vec<f32> {
        let logits = values(self.seed, self.rows.len() * self.vocab);
        logits
            .into_iter()
            .map(|v| (v * self.spread * 16.0).round() / 16.0)
            .collect()
    }

    pub fn run<B: Backend>(&self, subject: &Subject<B>) -> Sampled {
        self.run_on(subject, &self.logits())
    }

    pub fn run_on<B: Backend>(&self, subject: &Subject<B>, logits: &[f32]) -> Sampled {
        let rows = self.rows.len();
        let out = SampleOut {
            tokens: subject.zeros(DType::U32, rows),
            logprobs: subject.zeros(DType::F32, rows),
            top_n_max: self.top_n_max,
            top_tokens: subject.zeros(DType::U32, rows * self.top_n_max),
            top_logprobs: subject.zeros(DType::F32, rows * self.top_n_max),
        };
        let view = SamplingView {
            rows: subject.words(bytemuck::cast_slice(&self.rows)),
            token_counts: subject.words(bytemuck::cast_slice(&self.counts)),
            logit_bias: subject.words(bytemuck::cast_slice(&self.bias)),
        };
        subject.backend.sample(Sample {
            logits: &subject.floats(logits),
            vocab: self.vocab,
            rows,
            params: &view,
            out: &out,
        });
        Sampled {
            tokens: subject.read_words(&out.tokens),
            logprobs: subject.read(&out.logprobs),
            top_tokens: subject.read_words(&out.top_tokens),
            top_logprobs: subject.read(&out.top_logprobs),
        }
    }
}
