//! The sample op: per row penalties, bias and mask, the log-sum-exp, one token and the likeliest ones.

mod draw;
mod likeliest;
mod reduce;

use crate::buffer::DeviceBuffer;
use crate::cpu::handle::CpuBackend;
use crate::cpu::isa::Isa;
use crate::cpu::memory::{Dst, Src};
use crate::cpu::queue::Exec;
use crate::ops::Sample;
use crate::sampling::{LogitBias, NO_MASK, NO_TOKEN, SamplingRow, TokenCount, mask_words};
use draw::DrawScratch;
use reduce::{Largest, SumExp};
use std::cell::RefCell;

thread_local! {
    static SCRATCH: RefCell<DrawScratch> = RefCell::default();
}

struct Sampler {
    logits: Dst<f32>,
    vocab: usize,
    rows: Src<u32>,
    counts: Src<u32>,
    bias: Src<u32>,
    masks: Src<u32>,
    asked_tokens: Src<u32>,
    tokens: Dst<u32>,
    logprobs: Dst<f32>,
    top_n_max: usize,
    top_tokens: Dst<u32>,
    top_logprobs: Dst<f32>,
    asked_max: usize,
    asked_logprobs: Dst<f32>,
}

pub(in crate::cpu) fn sample(op: Sample<'_, CpuBackend>) -> impl FnOnce(&Exec<'_>) + Send + use<> {
    let Sample {
        logits,
        vocab,
        rows,
        params,
        out,
    } = op;
    let (top_n_max, asked_max) = (out.top_n_max, out.asked_max);
    // Both lists have two words per entry.
    let sampler = Sampler {
        logits: logits.dst("logits", rows * vocab),
        vocab,
        rows: params.rows.src("sampling rows", rows * SamplingRow::WORDS),
        counts: params
            .token_counts
            .src("token_counts", params.token_counts.len() / 2 * 2),
        bias: params
            .logit_bias
            .src("logit_bias", params.logit_bias.len() / 2 * 2),
        masks: params.masks.src("masks", params.masks.len()),
        asked_tokens: params.asked_tokens.src("asked_tokens", rows * asked_max),
        tokens: out.tokens.dst("sampled tokens", rows),
        logprobs: out.logprobs.dst("logprobs", rows),
        top_n_max,
        top_tokens: out.top_tokens.dst("top_tokens", rows * top_n_max),
        top_logprobs: out.top_logprobs.dst("top_logprobs", rows * top_n_max),
        asked_max,
        asked_logprobs: out.asked_logprobs.dst("asked_logprobs", rows * asked_max),
    };
    move |exec| {
        let isa = exec.isa;
        exec.threads.run(rows, |r, _| sampler.row(isa, r));
    }
}

// === impl Sampler ===

impl Sampler {
    fn row(&self, isa: Isa, r: usize) {
        // SAFETY: on the queue; the op does not write its parameters.
        let (rows, counts, bias, masks) = unsafe {
            (
                self.rows.slice(),
                self.counts.slice(),
                self.bias.slice(),
                self.masks.slice(),
            )
        };
        let row: SamplingRow = bytemuck::cast(rows.as_chunks::<{ SamplingRow::WORDS }>().0[r]);
        let counts: &[TokenCount] = bytemuck::cast_slice(counts);
        let bias: &[LogitBias] = bytemuck::cast_slice(bias);
        // SAFETY: on the queue; each row belongs to one task.
        let logits = unsafe { self.logits.slice_mut(r * self.vocab..(r + 1) * self.vocab) };
        penalise(
            logits,
            &row,
            &counts[row.counts_begin as usize..row.counts_end as usize],
        );
        add_bias(
            logits,
            &bias[row.bias_begin as usize..row.bias_end as usize],
        );
        if row.mask != NO_MASK {
            let words = mask_words(self.vocab);
            ban(logits, &masks[row.mask as usize * words..][..words]);
        }

        self.report(isa, r, &row, logits);
    }

    /// Draws from a row's logits, and fills its part of the outputs.
    fn report(&self, isa: Isa, r: usize, row: &SamplingRow, logits: &[f32]) {
        // SAFETY: the kernels have no needs of their own.
        let largest = unsafe { isa.dispatch(Largest { values: logits }) };
        let top = r * self.top_n_max..(r + 1) * self.top_n_max;
        let asked = r * self.asked_max..(r + 1) * self.asked_max;
        // SAFETY: on the queue; each row belongs to one task, and the op does not write its parameters.
        let (token, logprob, top_tokens, top_logprobs, asked_tokens, asked_logprobs) = unsafe {
            (
                &mut self.tokens.slice_mut(r..r + 1)[0],
                &mut self.logprobs.slice_mut(r..r + 1)[0],
                self.top_tokens.slice_mut(top.clone()),
                self.top_logprobs.slice_mut(top),
                &self.asked_tokens.slice()[asked.clone()],
                self.asked_logprobs.slice_mut(asked),
            )
        };
        top_tokens.fill(NO_TOKEN);
        top_logprobs.fill(f32::NAN);
        asked_logprobs.fill(f32::NAN);
        if !largest.is_finite() {
            (*token, *logprob) = (NO_TOKEN, f32::NAN);
            return;
        }
        // SAFETY: as above.
        let sum = unsafe {
            isa.dispatch(SumExp {
                values: logits,
                largest,
            })
        };
        let log_sum = f64::from(largest) + f64::from(sum).ln();
        #[allow(clippy::cast_possible_truncation, reason = "rounded once, on purpose")]
        let logprob_of = |token: u32| {
            let logit = logits.get(token as usize);
            logit.map_or(f32::NAN, |logit| (f64::from(*logit) - log_sum) as f32)
        };
        *token = match row.given {
            NO_TOKEN => {
                SCRATCH.with_borrow_mut(|scratch| draw::draw(isa, logits, largest, row, scratch))
            }
            given => given,
        };
        *logprob = logprob_of(*token);
        let top_n = self.top_n_max.min(row.top_n as usize);
        likeliest::likeliest(logits, &mut top_tokens[..top_n]);
        for (token, logprob) in top_tokens[..top_n].iter().zip(top_logprobs) {
            *logprob = logprob_of(*token);
        }
        for (token, logprob) in asked_tokens.iter().zip(asked_logprobs) {
            *logprob = logprob_of(*token);
        }
    }
}

/// Ids beyond the vocabulary are ignored, here and in [`add_bias`].
fn penalise(logits: &mut [f32], row: &SamplingRow, counts: &[TokenCount]) {
    for TokenCount {
        token,
        output_count,
    } in counts
    {
        let Some(logit) = logits.get_mut(*token as usize) else {
            continue;
        };
        if *logit > 0.0 {
            *logit /= row.repetition_penalty;
        } else {
            *logit *= row.repetition_penalty;
        }
        if *output_count > 0 {
            #[allow(clippy::cast_precision_loss, reason = "a context is far below 2^24")]
            let count = *output_count as f32;
            *logit -= row.presence_penalty + row.frequency_penalty * count;
        }
    }
}

fn add_bias(logits: &mut [f32], bias: &[LogitBias]) {
    for LogitBias { token, bias } in bias {
        if let Some(logit) = logits.get_mut(*token as usize) {
            *logit += bias;
        }
    }
}

/// Keeps the tokens whose bits are set.
fn ban(logits: &mut [f32], mask: &[u32]) {
    for (logits, word) in logits.chunks_mut(u32::BITS as usize).zip(mask) {
        for (bit, logit) in (0..).zip(logits) {
            if word >> bit & 1 == 0 {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
}

#[cfg(test)]
mod tests;
