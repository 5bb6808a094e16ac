//! The requests that an engine is measured with, and their durations.

use crate::checkpoint::{CONTEXT, Checkpoint};
use pd_compute::dtype::ComputeDtype;
use pd_compute_proof::speed::Bounds;
use pd_engine::engine::{
    Device, Engine, EngineConfig, EngineHandle, GenerateRequest, LogprobOptions, RequestStream,
};
use pd_engine::sample::params::SamplingParams;
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

/// Concurrent decoding requests, and tokens before the first measured one.
const DECODES: [(usize, usize); 5] = [(1, 128), (1, 32_000), (8, 128), (64, 128), (256, 128)];
const PROMPTS: [usize; 3] = [2048, 8192, 32_768];
/// Warm-up steps, and measured steps.
const WARM_STEPS: usize = 24;
const STEPS: usize = 64;
const PROMPT_RUNS: usize = 3;

/// One line of the result.
pub(crate) struct Measured {
    pub(crate) what: String,
    /// Median.
    pub(crate) ms: f64,
    pub(crate) p99_ms: Option<f64>,
    /// The hardware's minimum work.
    work: Work,
}

enum Work {
    /// Bytes that a step reads.
    Reads(f64),
    Multiplies(f64),
    Unknown,
}

// === impl Measured ===

impl Measured {
    /// The share of the best that the device was measured to do.
    pub(crate) fn share(&self, bounds: Bounds) -> Option<f64> {
        let seconds = self.ms / 1e3;
        match self.work {
            Work::Reads(bytes) => Some(bytes / seconds / 1e9 / bounds.gb_per_s),
            Work::Multiplies(flops) => Some(flops / seconds / 1e12 / bounds.tflop_per_s),
            Work::Unknown => None,
        }
    }
}

/// Starts engines over the checkpoint in `folder`; `report` receives each result as it is measured, of decodes and prompts
/// those that are `wanted` by name.
///
/// # Errors
/// When an engine does not start or takes a request wrongly.
pub(crate) fn measure(
    model: &Checkpoint,
    folder: &Path,
    device: &dyn Fn() -> Device,
    wanted: &dyn Fn(&str) -> bool,
    report: &mut dyn FnMut(Measured),
) -> Result<(), Box<dyn Error>> {
    let config = || EngineConfig {
        dtype: Some(ComputeDtype::BF16),
        page_size: 64,
        chunked_prefill_size: None,
        max_prefill_tokens: u32::try_from(CONTEXT).unwrap_or(u32::MAX),
        max_running_requests: 256,
        disable_radix_cache: true,
        device: device(),
        ..EngineConfig::new(folder)
    };
    let mut start = |what: &str| {
        let started = Instant::now();
        let engine = Engine::start(config())?;
        report(Measured {
            what: what.to_owned(),
            ms: ms(started.elapsed()),
            p99_ms: None,
            work: Work::Unknown,
        });
        Ok::<_, Box<dyn Error>>(engine)
    };
    start("start, files read first")?.end();
    let engine = start("start, files in memory")?;
    let capacity = engine.info().max_total_tokens as usize;
    for (requests, prompt) in DECODES {
        // A small device holds less.
        let fits = requests * (prompt + 4 * STEPS) <= capacity;
        if fits && wanted(&decode_name(requests, prompt)) {
            report(decode(model, &engine, requests, prompt)?);
        }
    }
    for tokens in PROMPTS {
        if tokens < capacity && wanted(&prefill_name(tokens)) {
            report(prefill(model, &engine, tokens)?);
        }
    }
    engine.end();
    Ok(())
}

fn decode_name(requests: usize, prompt: usize) -> String {
    format!("decode {requests} × {prompt}")
}

fn prefill_name(tokens: usize) -> String {
    format!("prefill {tokens}")
}

fn decode(
    model: &Checkpoint,
    engine: &EngineHandle,
    requests: usize,
    prompt: usize,
) -> Result<Measured, Box<dyn Error>> {
    // Those that start first are still there when the last one ends.
    let mates: Result<Vec<RequestStream>, _> = (1..requests)
        .map(|seed| engine.submit(request(seed, prompt, 4 * STEPS)))
        .collect();
    let (mates, mut last) = (
        mates?,
        engine.submit(request(0, prompt, WARM_STEPS + STEPS))?,
    );
    let mut arrivals = Vec::with_capacity(WARM_STEPS + STEPS);
    let mut finish = None;
    while let Some(event) = last.blocking_recv() {
        arrivals.extend(event.token_ids.iter().map(|_| Instant::now()));
        finish = event.finish;
    }
    drop(mates);
    if arrivals.len() != WARM_STEPS + STEPS {
        let tokens = arrivals.len();
        return Err(format!("an answer of {tokens} tokens, which ended by {finish:?}").into());
    }
    let counted = &arrivals[WARM_STEPS - 1..];
    let mut steps: Vec<_> = counted
        .windows(2)
        .map(|pair| ms(pair[1] - pair[0]))
        .collect();
    steps.sort_by(f64::total_cmp);
    let keys = prompt + WARM_STEPS + STEPS / 2;
    Ok(Measured {
        what: decode_name(requests, prompt),
        ms: steps[steps.len() / 2],
        p99_ms: Some(steps[steps.len() * 99 / 100]),
        work: Work::Reads(model.step_bytes(requests, keys)),
    })
}

fn prefill(
    model: &Checkpoint,
    engine: &EngineHandle,
    tokens: usize,
) -> Result<Measured, Box<dyn Error>> {
    let mut runs = Vec::new();
    for run in 0..=PROMPT_RUNS {
        let started = Instant::now();
        let mut stream = engine.submit(request(1000 + run, tokens, 1))?;
        while stream.blocking_recv().is_some() {}
        runs.push(ms(started.elapsed()));
    }
    // The first chooses kernels.
    let mut runs = runs.split_off(1);
    runs.sort_by(f64::total_cmp);
    Ok(Measured {
        what: prefill_name(tokens),
        ms: runs[runs.len() / 2],
        p99_ms: None,
        work: Work::Multiplies(model.prompt_flops(tokens)),
    })
}

/// Greedy, of made-up tokens that no other request begins with.
fn request(seed: usize, prompt: usize, new_tokens: usize) -> GenerateRequest {
    let token = |i: usize| u32::try_from(3 + (seed * 7919 + i * 31) % 250).unwrap_or(3);
    GenerateRequest {
        rid: format!("speed-{seed}"),
        input_ids: (0..prompt).map(token).collect(),
        sampling: SamplingParams {
            max_new_tokens: u32::try_from(new_tokens).ok(),
            temperature: 0.0,
            ignore_eos: true,
            ..SamplingParams::default()
        },
        logprobs: LogprobOptions::default(),
        grammar: None,
        bootstrap: None,
        choice: 0,
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
