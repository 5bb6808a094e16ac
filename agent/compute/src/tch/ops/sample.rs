//! The sample op on the host, in f64: nothing of it is shared with another backend's but the noise.

use crate::buffer::DeviceBuffer;
use crate::ops::Sample;
use crate::sampling::{LogitBias, NO_MASK, NO_TOKEN, SamplingRow, TokenCount, mask_words, noise};
use crate::tch::handle::TchBackend;
use std::cmp::Ordering;

pub(in crate::tch) fn sample(op: Sample<'_, TchBackend>) -> Result<(), String> {
    let Sample {
        logits: logits_buffer,
        vocab,
        rows,
        params,
        out,
    } = op;
    let host = logits_buffer.first("logits", rows * vocab)?;
    let mut logits: Vec<f32> = host.as_slice().to_vec();
    let row_words = rows * SamplingRow::WORDS;
    let asked_len = rows * out.asked_max;
    let (params_host, counts, bias, masks, asked) = (
        params.rows.first("sampling rows", row_words)?,
        params
            .token_counts
            .first("token_counts", params.token_counts.len() / 2 * 2)?,
        params
            .logit_bias
            .first("logit_bias", params.logit_bias.len() / 2 * 2)?,
        params.masks.first("masks", params.masks.len())?,
        params.asked_tokens.first("asked_tokens", asked_len)?,
    );
    let rows = params_host.as_slice::<SamplingRow>().iter().enumerate();
    let mut results = Results::default();
    for ((r, row), logits) in rows.zip(logits.chunks_exact_mut(vocab)) {
        penalise(
            logits,
            row,
            within(counts.as_slice(), row.counts_begin, row.counts_end)?,
        );
        add_bias(
            logits,
            within(bias.as_slice(), row.bias_begin, row.bias_end)?,
        );
        if row.mask != NO_MASK {
            let mut all = masks.as_slice::<u32>().chunks_exact(mask_words(vocab));
            let mask = all.nth(row.mask as usize);
            ban(logits, mask.ok_or("a row's mask is beyond the masks")?);
        }
        let distribution = Distribution::of(logits);
        results.add(&distribution, row, out.top_n_max);
        let asked = &asked.as_slice::<u32>()[r * out.asked_max..(r + 1) * out.asked_max];
        results.add_asked(&distribution, asked);
    }
    logits_buffer.write(bytemuck::cast_slice(&logits));
    out.tokens.write(bytemuck::cast_slice(&results.tokens));
    out.logprobs.write(bytemuck::cast_slice(&results.logprobs));
    out.top_tokens
        .write(bytemuck::cast_slice(&results.top_tokens));
    out.top_logprobs
        .write(bytemuck::cast_slice(&results.top_logprobs));
    out.asked_logprobs
        .write(bytemuck::cast_slice(&results.asked_logprobs));
    Ok(())
}

/// What goes to the buffers of `SampleOut`.
#[derive(Default)]
struct Results {
    tokens: Vec<u32>,
    logprobs: Vec<f32>,
    top_tokens: Vec<u32>,
    top_logprobs: Vec<f32>,
    asked_logprobs: Vec<f32>,
}

/// A row's logits after penalties and bias, none of which is NaN.
struct Distribution {
    logits: Vec<f32>,
    largest: f32,
    log_sum: f64,
}

fn within<T>(list: &[T], begin: u32, end: u32) -> Result<&[T], String> {
    let range = begin as usize..end as usize;
    let len = list.len();
    list.get(range.clone())
        .ok_or_else(|| format!("a row's entries {range:?} are beyond the list of {len}"))
}

/// Ids beyond the vocabulary are ignored, here and in [`add_bias`].
fn penalise(logits: &mut [f32], row: &SamplingRow, counts: &[TokenCount]) {
    for seen in counts {
        let Some(logit) = logits.get_mut(seen.token as usize) else {
            continue;
        };
        *logit = if *logit > 0.0 {
            *logit / row.repetition_penalty
        } else {
            *logit * row.repetition_penalty
        };
        if seen.output_count > 0 {
            #[allow(clippy::cast_precision_loss, reason = "a context is far below 2^24")]
            let count = seen.output_count as f32;
            *logit -= row.presence_penalty + row.frequency_penalty * count;
        }
    }
}

fn add_bias(logits: &mut [f32], bias: &[LogitBias]) {
    for entry in bias {
        if let Some(logit) = logits.get_mut(entry.token as usize) {
            *logit += entry.bias;
        }
    }
}

fn ban(logits: &mut [f32], mask: &[u32]) {
    for (token, logit) in logits.iter_mut().enumerate() {
        if mask[token / 32] & 1 << (token % 32) == 0 {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Larger first, equal ones by id.
fn likelier(a: &(u32, f32), b: &(u32, f32)) -> Ordering {
    let by_value = b.1.partial_cmp(&a.1).expect("no NaN is ranked");
    by_value.then(a.0.cmp(&b.0))
}

#[allow(clippy::cast_possible_truncation, reason = "rounded once, on purpose")]
fn to_f32(value: f64) -> f32 {
    value as f32
}

// === impl Results ===

impl Results {
    fn add(&mut self, from: &Distribution, row: &SamplingRow, top_n_max: usize) {
        let mut top = vec![(NO_TOKEN, f32::NAN); top_n_max];
        let (mut token, mut logprob) = (NO_TOKEN, f32::NAN);
        if from.largest.is_finite() {
            token = match row.given {
                NO_TOKEN => from.draw(row),
                given => given,
            };
            logprob = from.logprob(token);
            let wanted = top_n_max.min(row.top_n as usize);
            for (place, (id, _)) in top[..wanted].iter_mut().zip(from.ranked()) {
                *place = (id, from.logprob(id));
            }
        }
        self.tokens.push(token);
        self.logprobs.push(logprob);
        self.top_tokens.extend(top.iter().map(|(id, _)| *id));
        self.top_logprobs
            .extend(top.iter().map(|(_, logprob)| *logprob));
    }

    fn add_asked(&mut self, from: &Distribution, asked: &[u32]) {
        let logprob = |token: &u32| {
            let is_finite = from.largest.is_finite();
            if is_finite {
                from.logprob(*token)
            } else {
                f32::NAN
            }
        };
        self.asked_logprobs.extend(asked.iter().map(logprob));
    }
}

// === impl Distribution ===

impl Distribution {
    /// NaN counts as −∞, but is never among the likeliest.
    fn of(logits: &[f32]) -> Self {
        // `max` yields the other one when one is NaN.
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let above = |logit: &f32| f64::from(*logit) - f64::from(largest);
        let terms = logits.iter().filter(|logit| !logit.is_nan());
        let sum: f64 = terms.map(|logit| above(logit).exp()).sum();
        Self {
            logits: logits.to_vec(),
            largest,
            log_sum: f64::from(largest) + sum.ln(),
        }
    }

    /// NaN beyond the vocabulary.
    fn logprob(&self, token: u32) -> f32 {
        let logit = self.logits.get(token as usize);
        logit.map_or(f32::NAN, |l| to_f32(f64::from(*l) - self.log_sum))
    }

    /// All that are a number, likeliest first.
    fn ranked(&self) -> Vec<(u32, f32)> {
        let ids = (0u32..).zip(self.logits.iter().copied());
        let mut ranked: Vec<_> = ids.filter(|(_, logit)| !logit.is_nan()).collect();
        ranked.sort_by(likelier);
        ranked
    }

    /// The likeliest without temperature, or else by inversion of the cumulative distribution of what
    /// the filters keep: in order of ids without top-k and top-p, of ranks with them.
    fn draw(&self, row: &SamplingRow) -> u32 {
        if row.temperature <= 0.0 || row.top_k == 1 {
            return self.ranked().first().map_or(NO_TOKEN, |(id, _)| *id);
        }
        // In f32, as what a weight is compared with.
        let weight = |logit: f32| {
            let above = f64::from(logit) - f64::from(self.largest);
            to_f32((above / f64::from(row.temperature)).exp())
        };
        let ids = (0u32..).zip(&self.logits);
        let mut kept: Vec<_> = ids.map(|(id, logit)| (id, weight(*logit))).collect();
        kept.retain(|(_, weight)| *weight > 0.0);
        let total = mass(&kept);
        kept.retain(|(_, weight)| *weight >= row.min_p);
        let ranks_max = if row.top_k == 0 {
            usize::MAX
        } else {
            row.top_k as usize
        };
        if ranks_max < self.logits.len() || row.top_p < 1.0 {
            kept.sort_by(likelier);
            kept.truncate(ranks_max);
        }
        if row.top_p < 1.0 {
            let mut better = 0.0;
            let within_top_p = kept.iter().take_while(|(_, weight)| {
                let within = better <= total * f64::from(row.top_p);
                better += f64::from(*weight);
                within
            });
            kept.truncate(within_top_p.count());
        }
        let mut left = mass(&kept) * noise(row.seed(), row.choice, row.position, row.draw);
        let drawn = kept.iter().find(|(_, weight)| {
            left -= f64::from(*weight);
            left < 0.0
        });
        // The last takes what rounding left over.
        drawn.or(kept.last()).map_or(NO_TOKEN, |(id, _)| *id)
    }
}

fn mass(weights: &[(u32, f32)]) -> f64 {
    weights.iter().map(|(_, weight)| f64::from(*weight)).sum()
}
