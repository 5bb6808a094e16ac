//! Models whose layers see a window have a space of pages for them: requests keep their windows alone there, and no
//! answer changes by it.

use crate::harness::{
    Answer, GEMMA3, GPT_OSS, alone_on, assert_nothing_held, assert_same, collect,
};
use crate::harness::{generate, metric, mk_config, mk_prompt, mk_repeating, mk_unpenalised, ngram};
use crate::harness::{repeated, start};
use crate::pair::Pair;
use pd_engine::engine::{Device, EngineConfig, EngineHandle, GenerateRequest};
use pd_kv_transfer::TransportChoice;
use pd_protocol::Transport;
use proptest::prelude::*;

/// Without prompt logprobs, so that cached prefixes are used.
fn mk(prompt: &[u32], max_new_tokens: u32) -> GenerateRequest {
    let mut request = mk_unpenalised(prompt, max_new_tokens);
    request.logprobs.logprob_start_len = None;
    request
}

/// The smallest window space in which chunks of 32 can go on.
fn mk_tight(model: &str) -> EngineConfig {
    EngineConfig {
        chunked_prefill_size: Some(32),
        swa_full_tokens_ratio: Some(0.01),
        ..mk_config(model)
    }
}

fn window_pages(engine: &EngineHandle, states: &[&str]) -> f64 {
    let pages = states.iter().map(|state| {
        let name = format!("pdserve_window_pages{{state=\"{state}\"}}");
        metric(engine, &name)
    });
    pages.sum()
}

#[test]
fn a_long_context_fits_a_space_of_a_window_and_a_chunk() {
    for (model, expected) in [(GEMMA3, 9.0), (GPT_OSS, 6.0)] {
        let engine = start(mk_tight(model));
        let request = mk(&mk_prompt(3, 700), 200);
        assert_same(
            &generate(&engine, request.clone()),
            &alone_on(model, &request),
        );
        assert_nothing_held(&engine);
        let all = window_pages(&engine, &["free", "cached"]);
        assert!((all - expected).abs() < 0.1, "{all} pages of 16");
        assert!((metric(&engine, "pdserve_max_total_num_tokens") - 1024.0).abs() < 0.1);
    }
}

#[test]
fn a_prompt_that_comes_again_begins_at_its_last_full_page_while_its_window_is_there() {
    let engine = start(mk_tight(GEMMA3));
    let request = mk(&mk_prompt(3, 150), 10);
    let other = mk(&mk_prompt(4, 150), 10);
    let mut cached = Vec::new();
    for request in [&request, &request, &other, &request, &request] {
        let answer = generate(&engine, request.clone());
        assert_same(&answer, &alone_on(GEMMA3, request));
        cached.push(answer.cached_tokens);
    }
    assert_eq!(
        cached,
        [0, 144, 0, 0, 144],
        "another took the window's pages, and it was computed again"
    );
    assert_nothing_held(&engine);
}

#[test]
fn a_prefix_that_fills_the_space_leaves_room_for_its_own_answer() {
    for model in [GEMMA3, GPT_OSS] {
        let engine = start(mk_tight(model));
        for (cached, new_tokens) in [(0, 2), (144, 200)] {
            let request = mk(&mk_prompt(3, 150), new_tokens);
            let answer = generate(&engine, request.clone());
            assert_eq!(answer.cached_tokens, cached);
            assert_same(&answer, &alone_on(model, &request));
        }
        assert_nothing_held(&engine);
    }
}

#[test]
fn the_same_memory_holds_more_tokens() {
    let config = EngineConfig {
        max_total_tokens: None,
        max_running_requests: 4,
        disable_radix_cache: true,
        chunked_prefill_size: Some(32),
        device: Device::Cpu {
            threads: Some(1),
            kv_memory_bytes: 8 << 20,
        },
        ..mk_config(GEMMA3)
    };
    // The checkpoint is of bfloat16, and so is its pool.
    let layer = 2 * 2 * 24 * size_of::<u16>();
    let before = (8 << 20) / (4 * layer);
    let info = start(config).info().clone();
    assert_eq!(info.max_window_tokens, 4 * (80 + 32) + 2 * 32);
    assert_eq!((before, info.max_total_tokens), (10_922, 42_144));
}

#[test]
fn prompts_that_part_go_on_from_where_they_part() {
    let engine = start(EngineConfig {
        swa_full_tokens_ratio: Some(1.0),
        ..mk_tight(GPT_OSS)
    });
    let common = mk_prompt(3, 100);
    let mut cached = Vec::new();
    for seed in 0..3 {
        let request = mk(&[&common[..], &mk_prompt(50 + seed, 40)].concat(), 8);
        let answer = generate(&engine, request.clone());
        assert_same(&answer, &alone_on(GPT_OSS, &request));
        cached.push(answer.cached_tokens);
    }
    assert_eq!(
        cached,
        [0, 96, 96],
        "chunks leave their windows to the cache"
    );
    assert_nothing_held(&engine);
}

fn run(engine: &EngineHandle, requests: &[GenerateRequest]) -> Vec<Answer> {
    let submit = |request: &GenerateRequest| engine.submit(request.clone());
    let streams: Vec<_> = requests.iter().map(submit).collect();
    let streams = streams
        .into_iter()
        .map(|stream| stream.expect("a valid request"));
    streams.map(collect).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn requests_among_others_in_little_memory_are_as_alone(
        model in prop::sample::select(vec![GEMMA3, GPT_OSS]),
        chunk in prop::option::of(prop::sample::select(vec![16u32, 48])),
        page_size in prop::sample::select(vec![1u32, 4, 16]),
        ratio in prop::option::of(prop::sample::select(vec![0.01f32, 0.3])),
        drafts in prop::option::of(1..5u32),
        radix: bool,
        asked in prop::collection::vec((0..3u32, 1..100usize, 1..60u32), 2..6),
    ) {
        let engine = start(EngineConfig {
            chunked_prefill_size: chunk,
            page_size,
            swa_full_tokens_ratio: ratio,
            max_total_tokens: Some(256),
            schedule_conservativeness: 0.1,
            disable_radix_cache: !radix,
            speculative: drafts.and_then(ngram),
            ..mk_config(model)
        });
        let requests: Vec<_> = asked
            .into_iter()
            .map(|(seed, len, new_tokens)| mk_repeating(mk(&repeated(seed, len), new_tokens)))
            .collect();
        for _ in 0..2 {
            for (answer, request) in run(&engine, &requests).iter().zip(&requests) {
                assert_same(answer, &alone_on(model, request));
            }
        }
        assert_nothing_held(&engine);
    }
}

#[test]
fn requests_that_lose_their_pages_go_on_where_they_were() {
    for model in [GEMMA3, GPT_OSS] {
        let engine = start(EngineConfig {
            max_total_tokens: Some(256),
            swa_full_tokens_ratio: Some(1.0),
            schedule_conservativeness: 0.1,
            ..mk_tight(model)
        });
        let requests: Vec<_> = (0..6).map(|seed| mk(&mk_prompt(seed, 30), 60)).collect();
        for (answer, request) in run(&engine, &requests).iter().zip(&requests) {
            assert_same(answer, &alone_on(model, request));
        }
        assert!(metric(&engine, "pdserve_num_retractions_total") > 0.5);
        assert_nothing_held(&engine);
    }
}

#[test]
fn a_pair_in_little_memory_gives_the_answers_of_one_engine() {
    for (model, transport) in [(GEMMA3, Transport::Shm), (GPT_OSS, Transport::Tcp)] {
        let pair = Pair::start(TransportChoice::Only(transport), |config| EngineConfig {
            model_path: mk_config(model).model_path,
            mode: config.mode,
            max_total_tokens: Some(512),
            ..mk_tight(model)
        });
        let requests: Vec<_> = (0..6)
            .map(|seed| mk(&mk_prompt(seed % 4, 130), 40))
            .collect();
        let streams = pair.submit_all(&requests);
        for ((prefill, decode), request) in streams.into_iter().zip(&requests) {
            let first = collect(prefill).token_ids;
            let answer = collect(decode);
            assert_eq!(first, answer.token_ids[..1]);
            assert_same(&answer, &alone_on(model, request));
        }
        assert_nothing_held(&pair.prefill);
        assert_nothing_held(&pair.decode);
    }
}

#[test]
fn prefill_sends_the_last_window_alone() {
    let sent = |prompt_len| {
        let pair = Pair::start(TransportChoice::Only(Transport::Shm), |config| {
            EngineConfig {
                model_path: mk_config(GEMMA3).model_path,
                ..config
            }
        });
        let (prefill, decode) = pair.submit(&mk(&mk_prompt(3, prompt_len), 4), 1);
        collect(prefill);
        collect(decode);
        metric(&pair.prefill, "pdserve_kv_transfer_bytes_total")
    };
    // 80 keys before the next token lie in six pages of both; the layer that sees all has ten pages more.
    let token_bytes = 2 * 2 * 24 * size_of::<u16>();
    let more = sent(310) - sent(150);
    let expected = u32::try_from(10 * 16 * token_bytes).expect("small");
    assert!((more - f64::from(expected)).abs() < 0.5, "{more}");
}
