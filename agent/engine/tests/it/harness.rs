//! Engines over the tiny checkpoints, and their answers in one piece.

use pd_engine::engine::{
    Device, Engine, EngineConfig, EngineHandle, FinishReason, GenerateRequest,
};
use pd_engine::engine::{LogprobOptions, RequestStream, TokenLogprob};
use pd_engine::engine::{SpeculativeAlgorithm, SpeculativeConfig};
use pd_engine::sample::params::SamplingParams;
use std::path::PathBuf;

pub(crate) const LLAMA: &str = "tiny-llama";
/// Keeps latents in the place of keys and values.
pub(crate) const DEEPSEEK: &str = "tiny-deepseek-v3";
/// Three of its four layers see 80 keys.
pub(crate) const GEMMA3: &str = "tiny-gemma3";
/// Two of its three layers see 24 keys.
pub(crate) const GPT_OSS: &str = "tiny-gpt-oss-mxfp4";
/// Has recurrent states.
pub(crate) const QWEN3_5: &str = "tiny-qwen3-5";
/// One of each family that differs in what layers do.
pub(crate) const MODELS: [&str; 12] = [
    LLAMA,
    DEEPSEEK,
    GEMMA3,
    GPT_OSS,
    "tiny-mistral",
    "tiny-qwen2",
    "tiny-qwen3",
    "tiny-qwen3-moe",
    "tiny-qwen3-moe-fp8",
    QWEN3_5,
    "tiny-qwen3-5-moe",
    "tiny-qwen3-next",
];

/// All events of a request as one.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) token_ids: Vec<u32>,
    pub(crate) logprobs: Vec<TokenLogprob>,
    pub(crate) prompt_logprobs: Vec<TokenLogprob>,
    pub(crate) cached_tokens: u32,
    pub(crate) finish: Option<FinishReason>,
}

impl Answer {
    /// What decode has of it.
    pub(crate) fn without_prompt(mut self) -> Self {
        self.prompt_logprobs.clear();
        self
    }
}

pub(crate) fn mk_config(checkpoint: &str) -> EngineConfig {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(checkpoint);
    EngineConfig {
        max_total_tokens: Some(1024),
        device: on_threads(1),
        overlap_schedule: Some(true),
        ..EngineConfig::new(path)
    }
}

pub(crate) fn on_threads(threads: usize) -> Device {
    Device::Cpu {
        threads: Some(threads),
        kv_memory_bytes: 1 << 30,
    }
}

pub(crate) fn start(config: EngineConfig) -> EngineHandle {
    Engine::start(config).expect("the tiny checkpoint is served")
}

/// A greedy request for `max_new_tokens` that reports logprobs.
pub(crate) fn mk_request(prompt: &[u32], max_new_tokens: u32) -> GenerateRequest {
    GenerateRequest {
        rid: "test".to_owned(),
        input_ids: prompt.to_vec(),
        sampling: SamplingParams {
            max_new_tokens: Some(max_new_tokens),
            temperature: 0.0,
            ignore_eos: true,
            ..SamplingParams::default()
        },
        logprobs: LogprobOptions {
            return_logprob: true,
            logprob_start_len: None,
            top_logprobs_num: 2,
            ..LogprobOptions::default()
        },
        grammar: None,
        bootstrap: None,
        choice: 0,
    }
}

/// Some token ids below 256, by a fixed rule.
pub(crate) fn mk_prompt(seed: u32, len: usize) -> Vec<u32> {
    let mut state = seed ^ 0x5eed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 24
    };
    (0..len).map(|_| next()).collect()
}

/// A prompt in which every run of tokens is found again.
pub(crate) fn repeated(seed: u32, len: usize) -> Vec<u32> {
    let part = mk_prompt(seed, 8);
    part.into_iter().cycle().take(len).collect()
}

/// Its answer is of three tokens, so that it repeats and drafts are now right and now wrong.
pub(crate) fn mk_repeating(mut request: GenerateRequest) -> GenerateRequest {
    request.sampling.logit_bias = [5, 6, 7].map(|token| (token, 50.0)).to_vec();
    request
}

pub(crate) fn ngram(num_steps: u32) -> Option<SpeculativeConfig> {
    Some(SpeculativeConfig {
        algorithm: SpeculativeAlgorithm::Ngram,
        num_steps,
    })
}

pub(crate) fn collect(mut stream: RequestStream) -> Answer {
    let mut answer = Answer::default();
    while let Some(event) = stream.blocking_recv() {
        answer.token_ids.extend(event.token_ids);
        answer.logprobs.extend(event.logprobs);
        answer.prompt_logprobs.extend(event.prompt_logprobs);
        answer.cached_tokens = answer.cached_tokens.max(event.cached_tokens);
        answer.finish = event.finish.or(answer.finish);
    }
    answer
}

pub(crate) fn generate(engine: &EngineHandle, request: GenerateRequest) -> Answer {
    collect(engine.submit(request).expect("a valid request"))
}

/// The value of a metric without labels, or with the label `state`.
pub(crate) fn metric(engine: &EngineHandle, name: &str) -> f64 {
    let value = find_metric(engine, name);
    value.unwrap_or_else(|| panic!("no metric {name} in:\n{}", engine.metrics().encode()))
}

/// The same, if there is such a metric.
pub(crate) fn find_metric(engine: &EngineHandle, name: &str) -> Option<f64> {
    let text = engine.metrics().encode();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().expect("a number"))
}

/// Steps of the event loop after which gauges show the present state.
const TURNS: usize = 1000;

/// Waits for a step of the event loop; `true` if no request is left.
fn turn(engine: &EngineHandle) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime
        .block_on(engine.flush_cache())
        .expect("the engine runs")
}

/// Waits until the engine has ended every request and written its gauges.
pub(crate) fn settle(engine: &EngineHandle) {
    while !turn(engine) {}
    // A step answers ahead of its gauges: those of the one that emptied the cache are written when the next one answers.
    turn(engine);
    for _ in 0..TURNS {
        if held(engine).is_empty() {
            return;
        }
        turn(engine);
    }
}

/// Whether a metric reaches `value` soon.
pub(crate) fn comes_to_say(engine: &EngineHandle, name: &str, value: f64) -> bool {
    (0..TURNS).any(|_| {
        turn(engine);
        (metric(engine, name) - value).abs() < f64::EPSILON
    })
}

/// No request holds a page or row any more.
pub(crate) fn assert_nothing_held(engine: &EngineHandle) {
    settle(engine);
    assert_eq!(held(engine), Vec::<(&str, f64)>::new());
    assert_eq!(engine.drain_status().in_flight, 0);
}

/// The differences from an idle engine.
fn held(engine: &EngineHandle) -> Vec<(&'static str, f64)> {
    let names = [
        r#"pdserve_kv_pages{state="held"}"#,
        r#"pdserve_kv_pages{state="locked"}"#,
        r#"pdserve_kv_pages{state="quarantined"}"#,
        "pdserve_req_pool_rows_used",
        "pdserve_metadata_rows_used",
        "pdserve_num_running_reqs",
        "pdserve_num_queue_tokens",
        "pdserve_queue_oldest_age_seconds",
        "pdserve_num_queue_reqs",
        "pdserve_rooms_in_flight",
    ];
    let of_windows = [
        r#"pdserve_window_pages{state="held"}"#,
        r#"pdserve_window_pages{state="locked"}"#,
        r#"pdserve_window_pages{state="quarantined"}"#,
    ];
    let values = names.map(|name| (name, metric(engine, name)));
    let windows = of_windows.map(|name| (name, find_metric(engine, name).unwrap_or(0.0)));
    let values = values.into_iter().chain(windows);
    values.filter(|(_, value)| value.abs() > 0.5).collect()
}

/// A request with every switch that touches logits on.
pub(crate) fn mk_sampled(prompt: &[u32], max_new_tokens: u32) -> GenerateRequest {
    let mut request = mk_request(prompt, max_new_tokens);
    let sampling = &mut request.sampling;
    sampling.temperature = 0.8;
    sampling.top_p = 0.95;
    sampling.top_k = 40;
    sampling.repetition_penalty = 1.2;
    sampling.frequency_penalty = 0.3;
    sampling.logit_bias = vec![(7, -2.0)];
    sampling.seed = Some(42);
    request.choice = 1;
    request.logprobs.logprob_start_len = Some(3);
    request
}

/// As [`mk_sampled`], without penalties: a sample depends only on the token before it, so that
/// steps can be launched early.
pub(crate) fn mk_unpenalised(prompt: &[u32], max_new_tokens: u32) -> GenerateRequest {
    let mut request = mk_sampled(prompt, max_new_tokens);
    request.sampling.repetition_penalty = 1.0;
    request.sampling.frequency_penalty = 0.0;
    request
}

/// The answer to the request alone, with its prompt computed whole and one step after the other.
pub(crate) fn alone(request: &GenerateRequest) -> Answer {
    alone_on(LLAMA, request)
}

/// [`alone`], by another checkpoint.
pub(crate) fn alone_on(checkpoint: &str, request: &GenerateRequest) -> Answer {
    let config = EngineConfig {
        chunked_prefill_size: None,
        page_size: 1,
        overlap_schedule: Some(false),
        ..mk_config(checkpoint)
    };
    generate(&start(config), request.clone())
}

/// The same request with the log probabilities of some tokens at each position, of one twice.
pub(crate) fn naming_tokens(mut request: GenerateRequest) -> GenerateRequest {
    request.logprobs.token_ids_logprob = [5, 250, 5].into();
    request
}

/// Everything except the cached tokens.
pub(crate) fn assert_same(answer: &Answer, expected: &Answer) {
    assert_eq!(answer.token_ids, expected.token_ids);
    assert_eq!(answer.logprobs, expected.logprobs);
    assert_eq!(answer.prompt_logprobs, expected.prompt_logprobs);
    assert_eq!(answer.finish, expected.finish);
}
