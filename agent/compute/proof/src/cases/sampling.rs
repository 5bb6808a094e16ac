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
    /// Words of masks, one mask after another.
    pub masks: Vec<u32>,
    pub top_n_max: usize,
    /// A row's columns, one row after another; rows have equally many.
    pub asked: Vec<u32>,
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
    pub asked_logprobs: Vec<f32>,
}

// === impl SampleCase ===

impl SampleCase {
    /// Of rows that report, have seen and are biased towards nothing.
    pub fn new(rows: Vec<SamplingRow>, vocab: usize) -> Self {
        Self {
            rows,
            vocab,
            counts: Vec::new(),
            bias: Vec::new(),
            masks: Vec::new(),
            top_n_max: 0,
            asked: Vec::new(),
            spread: 6.0,
            seed: 1,
        }
    }

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
        let sampling = Sampling::new(subject, self);
        sampling.fill(&self.rows, logits);
        sampling.enqueue();
        sampling.read()
    }
}

/// The buffers of a case.
#[derive(Debug)]
pub struct Sampling<B: Backend> {
    subject: Subject<B>,
    rows: usize,
    vocab: usize,
    logits: B::Buffer,
    view: SamplingView<B>,
    out: SampleOut<B>,
}

// === impl Sampling ===

impl<B: Backend> Sampling<B> {
    pub fn new(subject: &Subject<B>, case: &SampleCase) -> Self {
        let rows = case.rows.len();
        let top = rows * case.top_n_max;
        Self {
            subject: subject.clone(),
            rows,
            vocab: case.vocab,
            logits: subject.zeros(DType::F32, rows * case.vocab),
            view: SamplingView {
                rows: subject.zeros(DType::U32, rows * SamplingRow::WORDS),
                token_counts: subject.words(bytemuck::cast_slice(&case.counts)),
                logit_bias: subject.words(bytemuck::cast_slice(&case.bias)),
                masks: subject.words(&case.masks),
                asked_tokens: subject.words(&case.asked),
            },
            out: SampleOut {
                tokens: subject.zeros(DType::U32, rows),
                logprobs: subject.zeros(DType::F32, rows),
                top_n_max: case.top_n_max,
                top_tokens: subject.zeros(DType::U32, top),
                top_logprobs: subject.zeros(DType::F32, top),
                asked_max: case.asked.len() / rows.max(1),
                asked_logprobs: subject.zeros(DType::F32, case.asked.len()),
            },
        }
    }

    /// Parameters and logits of as many rows as the case has.
    pub fn fill(&self, rows: &[SamplingRow], logits: &[f32]) {
        let backend = &self.subject.backend;
        backend.upload(&self.view.rows, rows);
        backend.upload(&self.logits, logits);
    }

    pub fn enqueue(&self) {
        self.subject.backend.sample(Sample {
            logits: &self.logits,
            vocab: self.vocab,
            rows: self.rows,
            params: &self.view,
            out: &self.out,
        });
    }

    pub fn read(&self) -> Sampled {
        let Self { subject, out, .. } = self;
        Sampled {
            tokens: subject.read_words(&out.tokens),
            logprobs: subject.read(&out.logprobs),
            top_tokens: subject.read_words(&out.top_tokens),
            top_logprobs: subject.read(&out.top_logprobs),
            asked_logprobs: subject.read(&out.asked_logprobs),
        }
    }
}
