//! Models with recurrent state: prefixes are found where their state was kept, and no answer changes by it.

use crate::harness::{QWEN3_5, alone_on, assert_nothing_held, assert_same, collect, generate};
use crate::harness::{metric, mk_config, mk_prompt, mk_unpenalised, start};
use pd_engine::engine::{Engine, EngineConfig, EngineHandle};

#[test]
fn a_prompt_that_comes_again_begins_at_its_last_full_page() {
    let engine = start(mk_config(QWEN3_5));
    let request = mk_unpenalised(&mk_prompt(3, 150), 10);
    let mut expected = alone_on(QWEN3_5, &request);
    // Computed positions have logprobs; the test is about the others.
    let mut request = request;
    request.logprobs.logprob_start_len = None;
    expected.prompt_logprobs.clear();
    for cached in [0, 144] {
        let answer = generate(&engine, request.clone());
        assert_eq!(answer.cached_tokens, cached);
        assert_same(&answer, &expected);
    }
    assert_nothing_held(&engine);
}

#[test]
fn a_prompt_that_parts_from_another_leaves_its_state_there_for_the_third() {
    let engine = start(mk_config(QWEN3_5));
    let common = mk_prompt(3, 100);
    let mut cached = Vec::new();
    for seed in 0..3 {
        let prompt = [&common[..], &mk_prompt(50 + seed, 40)].concat();
        let mut request = mk_unpenalised(&prompt, 8);
        request.logprobs.logprob_start_len = None;
        let answer = generate(&engine, request.clone());
        assert_same(&answer, &alone_on(QWEN3_5, &request));
        cached.push(answer.cached_tokens);
    }
    assert_eq!(
        cached,
        [0, 0, 96],
        "the second kept the state where they part"
    );
    assert_nothing_held(&engine);
}

#[test]
fn requests_that_lose_their_pages_go_on_where_they_were() {
    let requests: Vec<_> = (0..6)
        .map(|seed| mk_unpenalised(&mk_prompt(seed, 30), 60))
        .collect();
    let engine = start(EngineConfig {
        max_total_tokens: Some(256),
        schedule_conservativeness: 0.1,
        ..mk_config(QWEN3_5)
    });
    let streams: Vec<_> = requests
        .iter()
        .map(|request| engine.submit(request.clone()).expect("a valid request"))
        .collect();
    for (stream, request) in streams.into_iter().zip(&requests) {
        assert_same(&collect(stream), &alone_on(QWEN3_5, request));
    }
    assert!(metric(&engine, "pdserve_num_retractions_total") > 0.5);
    assert_nothing_held(&engine);
}

#[test]
fn as_few_slots_as_requests_suffice() {
    let engine = start(EngineConfig {
        max_running_requests: 2,
        max_mamba_cache_size: Some(2),
        ..mk_config(QWEN3_5)
    });
    let requests: Vec<_> = (0..6)
        .map(|seed| mk_unpenalised(&mk_prompt(seed % 2, 40), 12))
        .collect();
    let streams: Vec<_> = requests
        .iter()
        .map(|request| engine.submit(request.clone()).expect("a valid request"))
        .collect();
    for (stream, request) in streams.into_iter().zip(&requests) {
        assert_same(&collect(stream), &alone_on(QWEN3_5, request));
    }
    assert_nothing_held(&engine);
    assert_num_slots(&engine, 2.0);
}

#[test]
fn slots_for_cached_states_are_only_there_where_prefixes_are_cached() {
    for (disable_radix_cache, expected) in [(true, 3.0), (false, 27.0)] {
        let engine = start(EngineConfig {
            max_running_requests: 3,
            disable_radix_cache,
            ..mk_config(QWEN3_5)
        });
        let request = mk_unpenalised(&mk_prompt(1, 40), 4);
        assert_same(
            &generate(&engine, request.clone()),
            &alone_on(QWEN3_5, &request),
        );
        assert_num_slots(&engine, expected);
    }
}

/// While no request runs.
fn assert_num_slots(engine: &EngineHandle, expected: f64) {
    let slots = |state| {
        let name = format!("pdserve_state_slots{{state=\"{state}\"}}");
        metric(engine, &name)
    };
    let total = slots("free") + slots("cached");
    assert!((total - expected).abs() < 0.1, "{total}, not {expected}");
}

#[test]
fn fewer_slots_than_requests_are_refused_with_what_would_help() {
    let error = Engine::start(EngineConfig {
        max_running_requests: 4,
        max_mamba_cache_size: Some(3),
        ..mk_config(QWEN3_5)
    });
    let error = error.expect_err("too few slots").to_string();
    assert!(
        error.contains("--max-running-requests is 4")
            && error.contains("there are 3 slots")
            && error.contains("--max-mamba-cache-size"),
        "{error}"
    );
}
