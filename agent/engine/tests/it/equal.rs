//! Disaggregated equals unified, bit for bit: token ids and logprobs, over transports, chunk
//! and page sizes, batch-mates, cached prefixes and retraction (ARCHITECTURE.md, invariant 9).

use crate::harness::{Answer, alone, assert_nothing_held, assert_same, collect, metric};
use crate::harness::{DEEPSEEK, GEMMA3, GPT_OSS, LLAMA, MODELS, QWEN3_5};
use crate::harness::{alone_on, generate, mk_config, start};
use crate::harness::{mk_prompt, mk_request, mk_sampled, mk_unpenalised, naming_tokens};
use crate::pair::Pair;
use pd_engine::engine::{Device, EngineConfig, FinishReason};
use pd_kv_transfer::TransportChoice;
use pd_protocol::Transport;
use pd_protocol::layout::KvDtype;
use proptest::prelude::*;

/// The answer that a router's client gets: decode's, with prefill's prompt logprobs and those of named tokens at the first.
fn merge(prefill: Answer, mut decode: Answer) -> Answer {
    assert_eq!(prefill.token_ids, decode.token_ids[..1]);
    assert!(decode.logprobs[0].asked.is_empty());
    decode.logprobs[0]
        .asked
        .clone_from(&prefill.logprobs[0].asked);
    assert_eq!(prefill.logprobs, decode.logprobs[..1]);
    Answer {
        prompt_logprobs: prefill.prompt_logprobs,
        ..decode
    }
}

fn assert_both_idle(pair: &Pair) {
    assert_nothing_held(&pair.prefill);
    assert_nothing_held(&pair.decode);
}

fn one_request(transport: TransportChoice) {
    let request = naming_tokens(mk_sampled(&mk_prompt(9, 150), 20));
    let pair = Pair::start(transport, |config| config);
    let (prefill, decode) = pair.submit(&request, 1);
    let answer = merge(collect(prefill), collect(decode));
    assert_same(&answer, &alone(&request));
    assert_both_idle(&pair);
    assert!(metric(&pair.decode, "pdserve_kv_transfer_bytes_total") > 0.0);
    assert!(metric(&pair.prefill, "pdserve_kv_transfer_bytes_total") > 0.0);
    assert!(metric(&pair.prefill, "pdserve_kv_transfer_seconds_total") > 0.0);
    assert!((metric(&pair.prefill, "pdserve_prefill_tokens_total") - 150.0).abs() < 0.5);
    assert!(metric(&pair.decode, "pdserve_prefill_tokens_total") < 0.5);
    for engine in [&pair.prefill, &pair.decode] {
        assert!(metric(engine, "pdserve_kv_fence_release_seconds_count") > 0.5);
        let text = engine.metrics().encode();
        assert!(
            text.contains("\npdserve_kv_transfer_peer_bytes_total{"),
            "{text}"
        );
    }
}

#[test]
fn a_request_over_shared_memory_is_the_unified_engine_s() {
    one_request(TransportChoice::Only(Transport::Shm));
}

#[test]
fn a_request_over_tcp_is_the_unified_engine_s() {
    one_request(TransportChoice::Only(Transport::Tcp));
}

#[test]
fn a_request_over_what_auto_chooses_is_the_unified_engine_s() {
    one_request(TransportChoice::Auto);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn disaggregated_is_unified(
        model in prop::sample::select(MODELS.to_vec()),
        transport in prop::sample::select(vec![TransportChoice::Only(Transport::Shm), TransportChoice::Only(Transport::Tcp)]),
        prompt_len in 1..200usize,
        chunk in prop::option::of(prop::sample::select(vec![64u32, 80, 256])),
        page_size in prop::sample::select(vec![1u32, 16, 64]),
        mates in prop::collection::vec((1..120usize, 1..12u32), 0..4),
        twice: bool,
        penalised: bool,
    ) {
        let mk = if penalised { mk_sampled } else { mk_unpenalised };
        let request = naming_tokens(mk(&mk_prompt(9, prompt_len), 10));
        let expected = alone_on(model, &request);
        let pair = Pair::start(transport, |config| EngineConfig {
            model_path: mk_config(model).model_path,
            chunked_prefill_size: chunk,
            page_size,
            ..config
        });
        let mut streams = Vec::new();
        for (seed, (len, new_tokens)) in (100u32..).zip(mates) {
            let mate = mk_request(&mk_prompt(seed, len), new_tokens);
            streams.push(pair.submit(&mate, u64::from(seed)));
        }
        // The second finds the first one's prefix, or runs alongside it.
        for room in 1..=1 + u64::from(twice) {
            let (prefill, decode) = pair.submit(&request, room);
            assert_same(&merge(collect(prefill), collect(decode)), &expected);
        }
        for (prefill, decode) in streams {
            prop_assert_eq!(collect(prefill).finish, Some(FinishReason::Length));
            prop_assert_eq!(collect(decode).finish, Some(FinishReason::Length));
        }
        assert_both_idle(&pair);
    }
}

#[test]
fn kv_in_e4m3_is_unified_in_half_the_memory_and_counts_what_lies_beyond() {
    let mk = |kv_cache_dtype, config| EngineConfig {
        model_path: mk_config("tiny-mistral-full-fp8").model_path,
        kv_cache_dtype: Some(kv_cache_dtype),
        ..config
    };
    let request = mk_sampled(&mk_prompt(9, 150), 20);
    let unified = start(mk(KvDtype::Fp8E4m3, mk_config(LLAMA)));
    let expected = generate(&unified, request.clone());
    let pair = Pair::start(TransportChoice::Auto, |config| mk(KvDtype::Fp8E4m3, config));
    let (prefill, decode) = pair.submit(&request, 1);
    assert_same(&merge(collect(prefill), collect(decode)), &expected);
    assert_both_idle(&pair);
    for engine in [&unified, &pair.prefill, &pair.decode] {
        assert!(metric(engine, "pdserve_kv_saturated_values_total") > 0.5);
    }
    let tokens = |dtype| {
        let config = EngineConfig {
            max_total_tokens: None,
            device: Device::Cpu {
                threads: Some(1),
                kv_memory_bytes: 1 << 20,
            },
            ..mk(dtype, mk_config(LLAMA))
        };
        start(config).info().max_total_tokens
    };
    // A key and a value of 16 in each of two layers.
    assert_eq!(tokens(KvDtype::Bfloat16), (1 << 20) / (2 * 2 * 2 * 16));
    assert_eq!(tokens(KvDtype::Fp8E4m3), (1 << 20) / (2 * 2 * 16));
}

#[test]
fn what_decode_kept_in_host_memory_is_unchanged() {
    for model in [DEEPSEEK, GEMMA3, GPT_OSS, LLAMA, QWEN3_5] {
        kept_in_host_memory(model);
    }
}

fn kept_in_host_memory(model: &str) {
    let requests: Vec<_> = (0..5)
        .map(|seed| mk_unpenalised(&mk_prompt(seed, 30), 150))
        .collect();
    let pair = Pair::start(TransportChoice::Only(Transport::Shm), |config| {
        EngineConfig {
            model_path: mk_config(model).model_path,
            max_total_tokens: Some(256),
            swa_full_tokens_ratio: Some(1.0),
            ..config
        }
    });
    let streams = pair.submit_all(&requests);
    for ((prefill, decode), request) in streams.into_iter().zip(&requests) {
        let expected = alone_on(model, request);
        assert_same(&merge(collect(prefill), collect(decode)), &expected);
    }
    assert!(metric(&pair.decode, "pdserve_num_retractions_total") > 0.5);
    assert_both_idle(&pair);
}
