//! The engine on CUDA's kernels, emulated on the host: the same tokens and guarantees as on the
//! CPU.

mod families;
mod grammars;

use crate::harness::{
    Answer, DEEPSEEK, GEMMA3, GPT_OSS, LLAMA, QWEN3_5, alone, assert_nothing_held, assert_same,
    collect, generate, metric, mk_config, mk_prompt, mk_request, mk_sampled, mk_unpenalised, start,
};
use crate::pair::Pair;
use pd_compute::dtype::ComputeDtype;
use pd_compute_proof::EmulatedDriver;
use pd_engine::engine::{
    Device, Engine, EngineConfig, EngineHandle, FinishReason, GenerateRequest, StartError,
};
use pd_kv_transfer::TransportChoice;
use pd_protocol::Transport;
use pd_protocol::layout::KvDtype;
use std::sync::Arc;

const MEMORY_BYTES: usize = 64 << 20;

fn emulated(memory_bytes: usize, deterministic: bool) -> Device {
    Device::Cuda {
        driver: Arc::new(EmulatedDriver::new(memory_bytes)),
        mem_fraction_static: 0.9,
        deterministic,
        cuda_graph_max_bs: 8,
    }
}

fn on_cuda(dtype: ComputeDtype, deterministic: bool) -> EngineConfig {
    EngineConfig {
        dtype: Some(dtype),
        device: emulated(MEMORY_BYTES, deterministic),
        ..mk_config(LLAMA)
    }
}

/// The same tokens, with logprobs that differ only by the order of f32 additions.
fn assert_alike(answer: &Answer, expected: &Answer) {
    assert_eq!(answer.token_ids, expected.token_ids);
    let pairs = answer.logprobs.iter().zip(&expected.logprobs);
    let prompt = answer.prompt_logprobs.iter().zip(&expected.prompt_logprobs);
    for (actual, expected) in pairs.chain(prompt) {
        let values = (actual.logprob, expected.logprob);
        let alike = match values {
            (Some(actual), Some(expected)) => (actual - expected).abs() < 1e-3,
            (actual, expected) => actual == expected,
        };
        assert!(alike, "{values:?}");
    }
    assert_eq!(answer.finish, expected.finish);
}

#[test]
fn tokens_are_the_cpus() {
    let engine = start(on_cuda(ComputeDtype::F32, false));
    for request in [
        mk_request(&mk_prompt(1, 40), 12),
        mk_sampled(&mk_prompt(2, 70), 12),
    ] {
        let expected = alone(&request);
        assert_alike(&generate(&engine, request), &expected);
    }
    assert_nothing_held(&engine);
}

#[test]
fn replayed_steps_yield_what_launched_ones_do() {
    let requests: Vec<_> = (0..3u32)
        .map(|seed| mk_unpenalised(&mk_prompt(seed, 10 + 9 * seed as usize), 10 + 10 * seed))
        .collect();
    let mut answers = Vec::new();
    for (cuda_graph_max_bs, overlap) in [(0, false), (8, false), (8, true), (2, true)] {
        let driver = Arc::new(EmulatedDriver::new(MEMORY_BYTES));
        let engine = start(EngineConfig {
            device: Device::Cuda {
                driver: driver.clone(),
                mem_fraction_static: 0.9,
                // Otherwise rows added to a step take another kernel, and round differently.
                deterministic: true,
                cuda_graph_max_bs,
            },
            overlap_schedule: Some(overlap),
            ..on_cuda(ComputeDtype::BF16, true)
        });
        let streams: Vec<_> = requests
            .iter()
            .map(|request| engine.submit(request.clone()).expect("a valid request"))
            .collect();
        let all: Vec<_> = streams.into_iter().map(collect).collect();
        assert_eq!(
            driver.replays() > 3,
            cuda_graph_max_bs > 0,
            "{}",
            driver.replays()
        );
        let replays = metric(&engine, "pdserve_num_graph_replays_total");
        assert!((replays - driver.replays() as f64).abs() < 1.5, "{replays}");
        let ahead = metric(&engine, "pdserve_num_overlapped_steps_total");
        assert_eq!(ahead > 3.0, overlap, "{ahead}");
        assert_nothing_held(&engine);
        answers.push(all);
    }
    for others in &answers[1..] {
        for (answer, launched) in others.iter().zip(&answers[0]) {
            assert_same(answer, launched);
        }
    }
}

#[test]
fn deterministic_tokens_depend_on_neither_chunks_nor_company() {
    let request = mk_sampled(&mk_prompt(9, 81), 8);
    let whole = EngineConfig {
        chunked_prefill_size: None,
        page_size: 1,
        ..on_cuda(ComputeDtype::BF16, true)
    };
    let expected = generate(&start(whole), request.clone());
    // The last chunk is a single token.
    let engine = start(EngineConfig {
        chunked_prefill_size: Some(80),
        ..on_cuda(ComputeDtype::BF16, true)
    });
    let mates: Vec<_> = (0..2)
        .map(|seed| {
            let mate = mk_request(&mk_prompt(seed, 30), 6);
            engine.submit(mate).expect("a valid request")
        })
        .collect();
    assert_same(&generate(&engine, request), &expected);
    for mate in mates {
        assert_eq!(collect(mate).token_ids.len(), 6);
    }
    assert_nothing_held(&engine);
}

#[test]
fn windows_with_pages_of_their_own_change_no_token() {
    for model in [GEMMA3, GPT_OSS] {
        let on_model = |config| EngineConfig {
            model_path: mk_config(model).model_path,
            dtype: Some(ComputeDtype::BF16),
            device: emulated(MEMORY_BYTES, true),
            ..config
        };
        let tight = |config| EngineConfig {
            chunked_prefill_size: Some(32),
            swa_full_tokens_ratio: Some(0.01),
            ..on_model(config)
        };
        let request = mk_unpenalised(&mk_prompt(9, 100), 30);
        let whole = EngineConfig {
            chunked_prefill_size: None,
            page_size: 1,
            ..on_model(mk_config(model))
        };
        let expected = generate(&start(whole), request.clone());
        let engine = start(tight(mk_config(model)));
        assert_same(&generate(&engine, request.clone()), &expected);
        assert!(metric(&engine, "pdserve_num_graph_replays_total") > 3.0);
        assert_nothing_held(&engine);
        let pair = Pair::start(TransportChoice::Auto, tight);
        let (prefill, decode) = pair.submit(&request, 1);
        assert_eq!(collect(prefill).token_ids, expected.token_ids[..1]);
        assert_same(&collect(decode), &expected.without_prompt());
        assert_nothing_held(&pair.prefill);
        assert_nothing_held(&pair.decode);
    }
}

/// Pages, those of latents, and states beside them: an answer has the bits of one that kept its own.
#[test]
fn what_went_to_the_host_comes_back() {
    for model in [DEEPSEEK, QWEN3_5] {
        let config = |max_total_tokens| EngineConfig {
            model_path: mk_config(model).model_path,
            max_total_tokens: Some(max_total_tokens),
            schedule_conservativeness: 0.1,
            ..on_cuda(ComputeDtype::F32, true)
        };
        let requests: Vec<_> = (0..3)
            .map(|seed| mk_request(&mk_prompt(seed, 30), 24))
            .collect();
        let all = |engine: &EngineHandle| -> Vec<Answer> {
            let submit = |request: &GenerateRequest| engine.submit(request.clone());
            let streams: Vec<_> = requests.iter().map(submit).collect();
            let streams = streams.into_iter();
            streams
                .map(|stream| collect(stream.expect("a valid request")))
                .collect()
        };
        let expected = all(&start(config(1024)));
        let engine = start(config(112));
        for (answer, expected) in all(&engine).iter().zip(&expected) {
            assert_same(answer, expected);
        }
        let retractions = metric(&engine, "pdserve_num_retractions_total");
        assert!(retractions > 0.5, "{model}");
        assert_nothing_held(&engine);
    }
}

#[test]
fn the_largest_step_takes_no_more_memory() {
    let driver = Arc::new(EmulatedDriver::new(MEMORY_BYTES));
    let engine = start(EngineConfig {
        device: Device::Cuda {
            driver: driver.clone(),
            mem_fraction_static: 0.9,
            deterministic: false,
            cuda_graph_max_bs: 0,
        },
        ..on_cuda(ComputeDtype::BF16, false)
    });
    // The scratch space for shared keys is small, and taken by the first step.
    generate(&engine, mk_request(&mk_prompt(1, 300), 3));
    let before = driver.device_bytes();
    generate(&engine, mk_request(&mk_prompt(2, 512), 1));
    assert_eq!(driver.device_bytes(), before);
}

#[test]
fn a_fault_of_the_device_ends_every_answer_with_its_reason() {
    let driver = Arc::new(EmulatedDriver::new(MEMORY_BYTES));
    let engine = start(EngineConfig {
        device: Device::Cuda {
            driver: driver.clone(),
            mem_fraction_static: 0.9,
            deterministic: false,
            cuda_graph_max_bs: 8,
        },
        ..on_cuda(ComputeDtype::F32, false)
    });
    let mut stream = engine
        .submit(mk_request(&mk_prompt(1, 10), 500))
        .expect("a valid request");
    assert!(stream.blocking_recv().is_some());
    driver.refuse("cuMemcpyAsync", 0);
    let Some(FinishReason::Abort { reason, retriable }) = collect(stream).finish else {
        panic!("the stream ends with an event");
    };
    assert!(reason.contains("cuMemcpyAsync") && retriable, "{reason}");
}

#[test]
fn the_pool_takes_what_weights_leave_of_the_share() {
    let engine = start(EngineConfig {
        max_total_tokens: None,
        ..on_cuda(ComputeDtype::BF16, false)
    });
    let tokens = engine.info().max_total_tokens;
    assert!(tokens > 10_000, "{tokens} tokens of 64 MiB");
}

fn refusal(config: EngineConfig) -> String {
    let refused: StartError = Engine::start(config).expect_err("it is refused");
    refused.to_string()
}

#[test]
fn a_device_that_is_too_small_is_refused_with_the_arithmetic() {
    let config = EngineConfig {
        device: emulated(200_000, false),
        ..mk_config(LLAMA)
    };
    let message = refusal(config);
    assert!(message.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{message}");
    let config = EngineConfig {
        max_total_tokens: None,
        device: Device::Cuda {
            driver: Arc::new(EmulatedDriver::new(MEMORY_BYTES)),
            mem_fraction_static: 0.001,
            deterministic: false,
            cuda_graph_max_bs: 0,
        },
        ..mk_config(LLAMA)
    };
    let message = refusal(config);
    assert!(
        message.starts_with("--mem-fraction-static is 0.001; of 67108864 bytes"),
        "{message}"
    );
}

#[test]
fn a_kv_pool_that_the_kernels_do_not_read_is_refused() {
    let config = EngineConfig {
        kv_cache_dtype: Some(KvDtype::Float16),
        ..on_cuda(ComputeDtype::BF16, false)
    };
    assert_eq!(
        refusal(config),
        "cannot set up the device: the CUDA backend takes no KV pool of F16 with heads of 16: it keeps KV as its \
         activations, in BF16, or in E4M3"
    );
}

/// Prefill on one device, decode on another, like two processes on one host, with a configuration and its own devices.
fn assert_a_pair_is_the_unified_engine(
    transport: TransportChoice,
    change: impl Fn(EngineConfig) -> EngineConfig,
) -> Pair {
    let on_cuda = |config| EngineConfig {
        dtype: Some(ComputeDtype::BF16),
        device: emulated(MEMORY_BYTES, false),
        ..change(config)
    };
    let request = mk_sampled(&mk_prompt(9, 70), 8);
    let expected = generate(&start(on_cuda(mk_config(LLAMA))), request.clone());
    let pair = Pair::start(transport, on_cuda);
    let (prefill, decode) = pair.submit(&request, 1);
    let (prefill, decode) = (collect(prefill), collect(decode));
    assert_eq!(prefill.token_ids, decode.token_ids[..1]);
    assert_eq!(decode.token_ids, expected.token_ids);
    assert_eq!(decode.logprobs, expected.logprobs);
    assert_nothing_held(&pair.prefill);
    assert_nothing_held(&pair.decode);
    pair
}

#[test]
fn kv_goes_from_device_to_device_on_one_host() {
    assert_a_pair_is_the_unified_engine(TransportChoice::Only(Transport::Shm), |config| config);
}

#[test]
fn kv_goes_from_device_to_device_by_way_of_the_host() {
    assert_a_pair_is_the_unified_engine(TransportChoice::Only(Transport::Tcp), |config| config);
}

#[test]
fn kv_in_e4m3_goes_as_it_is_and_what_lies_beyond_is_counted() {
    let pair = assert_a_pair_is_the_unified_engine(TransportChoice::Auto, |config| EngineConfig {
        model_path: mk_config("tiny-mistral-full-fp8").model_path,
        kv_cache_dtype: Some(KvDtype::Fp8E4m3),
        ..config
    });
    for engine in [&pair.prefill, &pair.decode] {
        assert!(metric(engine, "pdserve_kv_saturated_values_total") > 0.5);
    }
}

#[test]
fn a_device_and_a_host_pair_over_tcp_and_say_why() {
    let on_host = std::cell::Cell::new(true);
    let request = mk_request(&mk_prompt(3, 40), 6);
    let pair = Pair::start(TransportChoice::Auto, |config| EngineConfig {
        dtype: Some(ComputeDtype::F32),
        device: if on_host.replace(false) {
            config.device
        } else {
            emulated(MEMORY_BYTES, false)
        },
        ..config
    });
    let (_prefill, decode) = pair.submit(&request, 1);
    assert_alike(&collect(decode), &alone(&request));
    let text = pair.decode.metrics().encode();
    assert!(text.contains("transport=\"tcp\""), "{text}");
}
