//! Families with experts, recurrent states and latents on CUDA's kernels, emulated on the host: the CPU's tokens, and the
//! guarantees of steps.

use crate::cuda::{MEMORY_BYTES, assert_alike, emulated};
use crate::harness::{
    Answer, DEEPSEEK, QWEN3_5, alone_on, assert_nothing_held, assert_same, collect, generate,
    metric, mk_config, mk_prompt, mk_request, mk_sampled, mk_unpenalised, start,
};
use crate::pair::Pair;
use pd_compute::dtype::ComputeDtype;
use pd_compute_proof::EmulatedDriver;
use pd_engine::engine::{Device, EngineConfig};
use pd_kv_transfer::TransportChoice;
use pd_protocol::Transport;
use std::sync::Arc;

const QWEN3_5_MOE: &str = "tiny-qwen3-5-moe";

fn on_cuda(model: &str, dtype: ComputeDtype, deterministic: bool) -> EngineConfig {
    EngineConfig {
        dtype: Some(dtype),
        device: emulated(MEMORY_BYTES, deterministic),
        ..mk_config(model)
    }
}

#[test]
fn tokens_of_experts_states_and_latents_are_the_cpus() {
    for model in [
        "tiny-qwen3-moe",
        "tiny-gpt-oss-mxfp4",
        QWEN3_5_MOE,
        DEEPSEEK,
    ] {
        let engine = start(on_cuda(model, ComputeDtype::F32, false));
        let request = mk_sampled(&mk_prompt(2, 70), 8);
        let expected = alone_on(model, &request);
        assert_alike(&generate(&engine, request), &expected);
        assert_nothing_held(&engine);
    }
}

/// As a request gets it beside two others, with its prompt cut.
fn in_company(config: EngineConfig) -> Answer {
    let engine = start(EngineConfig {
        chunked_prefill_size: Some(48),
        ..config
    });
    let mates: Vec<_> = (0..2)
        .map(|seed| {
            let mate = mk_request(&mk_prompt(seed, 30), 6);
            engine.submit(mate).expect("a valid request")
        })
        .collect();
    let answer = generate(&engine, mk_sampled(&mk_prompt(9, 81), 8));
    for mate in mates {
        assert_eq!(collect(mate).token_ids.len(), 6);
    }
    assert_nothing_held(&engine);
    answer
}

#[test]
fn deterministic_tokens_of_each_family_depend_on_neither_chunks_nor_company() {
    for model in ["tiny-gpt-oss-mxfp4", QWEN3_5_MOE, DEEPSEEK] {
        let config = || on_cuda(model, ComputeDtype::BF16, true);
        let whole = EngineConfig {
            chunked_prefill_size: None,
            page_size: 1,
            ..config()
        };
        let expected = generate(&start(whole), mk_sampled(&mk_prompt(9, 81), 8));
        assert_same(&in_company(config()), &expected);
    }
}

#[test]
fn replayed_steps_of_each_family_yield_what_launched_ones_do() {
    for model in [QWEN3_5_MOE, DEEPSEEK] {
        let mut answers = Vec::new();
        for cuda_graph_max_bs in [0, 8] {
            let driver = Arc::new(EmulatedDriver::new(MEMORY_BYTES));
            let engine = start(EngineConfig {
                device: Device::Cuda {
                    driver: driver.clone(),
                    mem_fraction_static: 0.9,
                    deterministic: true,
                    cuda_graph_max_bs,
                },
                ..on_cuda(model, ComputeDtype::BF16, true)
            });
            let streams: Vec<_> = (0..3u32)
                .map(|seed| mk_unpenalised(&mk_prompt(seed, 10 + 9 * seed as usize), 12))
                .map(|request| engine.submit(request).expect("a valid request"))
                .collect();
            answers.push(streams.into_iter().map(collect).collect::<Vec<_>>());
            assert_eq!(driver.replays() > 3, cuda_graph_max_bs > 0, "{model}");
            assert_nothing_held(&engine);
        }
        for (replayed, launched) in answers[1].iter().zip(&answers[0]) {
            assert_same(replayed, launched);
        }
    }
}

#[test]
fn states_that_went_to_the_host_come_back() {
    let requests: Vec<_> = (0..6)
        .map(|seed| mk_request(&mk_prompt(seed, 30), 30))
        .collect();
    let engine = start(EngineConfig {
        max_total_tokens: Some(192),
        schedule_conservativeness: 0.1,
        ..on_cuda(QWEN3_5, ComputeDtype::F32, false)
    });
    let streams: Vec<_> = requests
        .iter()
        .map(|request| engine.submit(request.clone()).expect("a valid request"))
        .collect();
    for (stream, request) in streams.into_iter().zip(&requests) {
        assert_alike(&collect(stream), &alone_on(QWEN3_5, request));
    }
    assert!(metric(&engine, "pdserve_num_retractions_total") > 0.5);
    assert_nothing_held(&engine);
}

/// Prefill on one device, decode on another, like two processes on one host.
#[test]
fn states_and_latents_go_from_device_to_device() {
    for (model, transport) in [(QWEN3_5_MOE, Transport::Shm), (DEEPSEEK, Transport::Tcp)] {
        let request = mk_sampled(&mk_prompt(9, 70), 8);
        let config = || on_cuda(model, ComputeDtype::BF16, true);
        let expected = generate(&start(config()), request.clone());
        let pair = Pair::start(TransportChoice::Only(transport), |side| EngineConfig {
            mode: side.mode,
            ..config()
        });
        let (prefill, decode) = pair.submit(&request, 1);
        let (prefill, decode) = (collect(prefill), collect(decode));
        assert_eq!(prefill.token_ids, decode.token_ids[..1]);
        assert_same(&decode, &expected.without_prompt());
        assert_nothing_held(&pair.prefill);
        assert_nothing_held(&pair.decode);
    }
}
