//! Mode `null`: what a request gets does not depend on how its prompt was cut, on its company, on
//! the page size, on cached prefixes, or on having lost its pages on the way.

use crate::harness::{
    DEEPSEEK, GPT_OSS, LLAMA, QWEN3_5, alone_on, assert_nothing_held, collect, generate, metric,
    mk_config,
};
use crate::harness::{
    alone, assert_same, mk_prompt, mk_request, mk_sampled, mk_unpenalised, on_threads, start,
};
use pd_engine::engine::{EngineConfig, FinishReason, StopMatch};
use pd_engine::engine::{LogprobOptions, SubmitError};
use proptest::prelude::*;

#[test]
fn a_request_gets_as_many_tokens_as_it_asked_for() {
    let engine = start(mk_config(LLAMA));
    let answer = generate(&engine, mk_request(&mk_prompt(1, 40), 8));
    assert_eq!(answer.finish, Some(FinishReason::Length));
    assert_eq!(answer.token_ids.len(), 8);
    assert_eq!(answer.logprobs.len(), 8);
    assert!(answer.logprobs.iter().all(|logprob| logprob.top.len() == 2));
    assert_nothing_held(&engine);
}

#[test]
fn a_request_for_no_token_gets_its_prompts_logprobs() {
    let engine = start(mk_config(LLAMA));
    let mut request = mk_request(&mk_prompt(1, 40), 1);
    request.logprobs.logprob_start_len = Some(0);
    let one = generate(&engine, request.clone());
    request.sampling.max_new_tokens = Some(0);
    // A token that would end the answer is sampled and does not count.
    request.sampling.stop_token_ids = one.token_ids;
    let none = generate(&engine, request);
    assert_eq!(none.finish, Some(FinishReason::Length));
    assert_eq!((none.token_ids, none.logprobs), (vec![], vec![]));
    assert_eq!(none.prompt_logprobs, one.prompt_logprobs);
    assert!((metric(&engine, "pdserve_generation_tokens_total") - 1.0).abs() < 0.5);
    assert_nothing_held(&engine);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn chunks_pages_and_company_do_not_matter(
        prompt_len in 1..200usize,
        chunk in prop::option::of(prop::sample::select(vec![64u32, 80, 256])),
        page_size in prop::sample::select(vec![1u32, 16, 64]),
        mates in prop::collection::vec((1..120usize, 1..12u32), 0..4),
        threads in 1..3usize,
        penalised: bool,
    ) {
        let mk = if penalised { mk_sampled } else { mk_unpenalised };
        let request = mk(&mk_prompt(9, prompt_len), 10);
        let expected = alone(&request);
        let engine = start(EngineConfig {
            chunked_prefill_size: chunk,
            page_size,
            device: on_threads(threads),
            ..mk_config(LLAMA)
        });
        let mut streams = Vec::new();
        for (seed, (len, new_tokens)) in (100..).zip(mates) {
            let mate = mk_request(&mk_prompt(seed, len), new_tokens);
            streams.push(engine.submit(mate).expect("a valid request"));
        }
        let answer = generate(&engine, request);
        assert_same(&answer, &expected);
        for stream in streams {
            prop_assert_eq!(collect(stream).finish, Some(FinishReason::Length));
        }
        assert_nothing_held(&engine);
    }
}

#[test]
fn a_cached_prefix_changes_no_bit() {
    for model in [LLAMA, DEEPSEEK] {
        a_cached_prefix(model);
    }
}

fn a_cached_prefix(model: &str) {
    let prompt = mk_prompt(5, 90);
    let mut request = mk_sampled(&prompt, 12);
    request.logprobs.logprob_start_len = None;
    let expected = alone_on(model, &request);
    let engine = start(mk_config(model));
    let first = generate(&engine, request.clone());
    let second = generate(&engine, request.clone());
    assert_eq!(first.cached_tokens, 0);
    assert_eq!(second.cached_tokens, 80);
    assert_same(&first, &expected);
    assert_same(&second, &expected);
    let engine_was_idle = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime")
        .block_on(engine.flush_cache());
    assert_eq!(engine_was_idle, Ok(true));
    assert_eq!(generate(&engine, request).cached_tokens, 0);
}

/// Choices begin with what the first has computed, in models that keep a prompt in different ways.
#[test]
fn a_prompt_with_many_choices_is_computed_once() {
    for model in [LLAMA, DEEPSEEK, GPT_OSS, QWEN3_5] {
        let config = EngineConfig {
            chunked_prefill_size: Some(64),
            max_total_tokens: Some(32_768),
            ..mk_config(model)
        };
        let choice = |choice| {
            let mut request = mk_sampled(&mk_prompt(7, 200), 12);
            request.logprobs.logprob_start_len = None;
            request.choice = choice;
            request
        };
        let engine = start(config);
        let streams: Vec<_> = (0..5)
            .map(|nr| engine.submit(choice(nr)).expect("a place in the queue"))
            .collect();
        for (nr, stream) in (0..).zip(streams) {
            let answer = collect(stream);
            assert_same(&answer, &alone_on(model, &choice(nr)));
            let least = if nr == 0 { 0 } else { 192 };
            assert!(
                answer.cached_tokens >= least,
                "{model}, choice {nr}: {} tokens",
                answer.cached_tokens
            );
        }
        assert_nothing_held(&engine);
    }
}

#[test]
fn answers_become_prefixes_too() {
    let engine = start(mk_config(LLAMA));
    let prompt = mk_prompt(6, 20);
    let answer = generate(&engine, mk_request(&prompt, 30));
    let next = [&prompt[..], &answer.token_ids, &[1, 2, 3]].concat();
    assert_eq!(generate(&engine, mk_request(&next, 1)).cached_tokens, 48);
}

#[test]
fn requests_that_lose_their_pages_go_on_where_they_were() {
    let requests: Vec<_> = (0..6)
        .map(|seed| mk_unpenalised(&mk_prompt(seed, 30), 60))
        .collect();
    let expected: Vec<_> = requests.iter().map(alone).collect();
    let engine = start(EngineConfig {
        max_total_tokens: Some(256),
        schedule_conservativeness: 0.1,
        ..mk_config(LLAMA)
    });
    let streams: Vec<_> = requests
        .iter()
        .map(|request| engine.submit(request.clone()).expect("a valid request"))
        .collect();
    for (stream, expected) in streams.into_iter().zip(&expected) {
        assert_same(&collect(stream), expected);
    }
    assert!(metric(&engine, "pdserve_num_retractions_total") > 0.5);
    assert_nothing_held(&engine);
    // It began at 0.07; an answer of at most 60 tokens now counts for 20 at least.
    let ratio = metric(&engine, "pdserve_new_token_ratio");
    assert!(ratio > 0.3, "a retraction raises it: {ratio}");
}

#[test]
fn the_new_token_ratio_falls_as_fast_on_steps_that_are_launched_ahead() {
    let [ahead, one_by_one] = [true, false].map(|overlap| {
        let engine = start(EngineConfig {
            overlap_schedule: Some(overlap),
            ..mk_config(LLAMA)
        });
        generate(&engine, mk_unpenalised(&mk_prompt(1, 20), 61));
        assert_nothing_held(&engine);
        let steps = metric(&engine, "pdserve_num_overlapped_steps_total");
        assert_eq!(steps > 50.0, overlap, "{steps}");
        metric(&engine, "pdserve_new_token_ratio")
    });
    // 600 steps take it from 0.7 to 0.098.
    let expected = 0.7 - 60.0 * (0.7 - 0.098) / 600.0;
    assert!((one_by_one - expected).abs() < 1e-6, "{one_by_one}");
    assert!((ahead - one_by_one).abs() < 1e-9, "{ahead}");
}

#[test]
fn steps_that_are_launched_ahead_change_no_bit() {
    // Some end by a token that is known too late, some by their length.
    let requests: Vec<_> = (0..6u32)
        .map(|seed| {
            let mut request = mk_unpenalised(&mk_prompt(seed, 20 + seed as usize), 40 + seed);
            if seed % 2 == 0 {
                let free = alone(&request);
                request.sampling.stop_token_ids = vec![free.token_ids[10 + seed as usize]];
            }
            request
        })
        .collect();
    let expected: Vec<_> = requests.iter().map(alone).collect();
    let engine = start(mk_config(LLAMA));
    let streams: Vec<_> = requests
        .into_iter()
        .map(|request| engine.submit(request).expect("a valid request"))
        .collect();
    for (stream, expected) in streams.into_iter().zip(&expected) {
        assert_same(&collect(stream), expected);
    }
    assert_nothing_held(&engine);
    assert!(metric(&engine, "pdserve_num_overlapped_steps_total") > 20.0);
    // Each sample of the next depends on all before.
    let before = metric(&engine, "pdserve_num_overlapped_steps_total");
    generate(&engine, mk_sampled(&mk_prompt(1, 20), 10));
    let after = metric(&engine, "pdserve_num_overlapped_steps_total");
    assert!((after - before).abs() < 0.5);
}

#[test]
fn prompt_logprobs_begin_where_asked() {
    let engine = start(mk_config(LLAMA));
    let prompt = mk_prompt(2, 300);
    let mut request = mk_request(&prompt, 1);
    request.logprobs.logprob_start_len = Some(0);
    let answer = generate(&engine, request.clone());
    assert_eq!(answer.prompt_logprobs.len(), prompt.len());
    assert_eq!(answer.prompt_logprobs[0].logprob, None);
    let tokens: Vec<_> = answer
        .prompt_logprobs
        .iter()
        .map(|logprob| logprob.token)
        .collect();
    assert_eq!(tokens, prompt);
    request.logprobs.logprob_start_len = Some(290);
    let tail = generate(&engine, request);
    assert_eq!(tail.prompt_logprobs, answer.prompt_logprobs[290..]);
    assert_eq!(tail.cached_tokens, 288);
}

#[test]
fn a_one_token_prompt_has_one_prompt_logprob() {
    let engine = start(mk_config(LLAMA));
    let mut request = mk_request(&[9], 1);
    request.logprobs.logprob_start_len = Some(0);
    assert_eq!(generate(&engine, request).prompt_logprobs.len(), 1);
}

#[test]
fn a_stop_string_ends_the_answer() {
    let engine = start(mk_config(LLAMA));
    let mut request = mk_request(&mk_prompt(3, 20), 40);
    let free = generate(&engine, request.clone());
    let text = engine.tokenizer().decode(&free.token_ids, true);
    let stop: String = text.chars().skip(4).take(3).collect();
    request.sampling.stop = vec![stop.clone()];
    let answer = generate(&engine, request);
    let matched = StopMatch::Text(stop.clone());
    assert_eq!(
        answer.finish,
        Some(FinishReason::Stop { matched }),
        "{text:?}"
    );
    assert!(answer.token_ids.len() < free.token_ids.len());
    assert!(
        engine
            .tokenizer()
            .decode(&answer.token_ids, true)
            .contains(&stop)
    );
}

#[test]
fn a_stop_id_ends_the_answer_but_not_below_the_minimum() {
    let engine = start(mk_config(LLAMA));
    let mut request = mk_request(&mk_prompt(3, 20), 20);
    let free = generate(&engine, request.clone());
    let third = free.token_ids[2];
    request.sampling.stop_token_ids = vec![third];
    let matched = StopMatch::Token(third);
    let answer = generate(&engine, request.clone());
    assert_eq!(answer.finish, Some(FinishReason::Stop { matched }));
    request.sampling.min_new_tokens = 20;
    let answer = generate(&engine, request);
    assert_eq!(answer.finish, Some(FinishReason::Length));
    assert!(!answer.token_ids.contains(&third));
}

#[test]
fn a_dropped_stream_gives_everything_back() {
    let engine = start(mk_config(LLAMA));
    let mut running = engine
        .submit(mk_request(&mk_prompt(1, 30), 900))
        .expect("valid");
    assert!(running.blocking_recv().is_some());
    let waiting = engine
        .submit(mk_request(&mk_prompt(2, 200), 700))
        .expect("valid");
    drop(running);
    drop(waiting);
    assert_nothing_held(&engine);
    assert_eq!(engine.drain_status().in_flight, 0);
}

#[test]
fn requests_that_can_never_be_served_are_refused() {
    let engine = start(mk_config(LLAMA));
    let refused = |request| engine.submit(request).expect_err("refused");
    let context_length = engine.info().context_length as usize;
    assert_eq!(refused(mk_request(&[], 1)), SubmitError::EmptyPrompt);
    let long = mk_request(&mk_prompt(1, 1024), 1);
    let (prompt_len, capacity) = (1024, 1023);
    assert_eq!(
        refused(long),
        SubmitError::PromptExceedsCapacity {
            prompt_len,
            capacity
        }
    );
    let too_long = mk_request(&mk_prompt(1, context_length), 1);
    assert!(matches!(
        refused(too_long),
        SubmitError::PromptExceedsContext { .. }
    ));
    assert!(matches!(
        refused(mk_request(&[u32::MAX], 1)),
        SubmitError::TokenOutOfVocabulary {
            token: u32::MAX,
            ..
        }
    ));
    let mut request = mk_request(&[1], 1);
    request.sampling.temperature = f32::NAN;
    assert_eq!(refused(request).param(), Some("temperature"));
    engine.cordon();
    assert_eq!(refused(mk_request(&[1], 1)), SubmitError::Cordoned);
    engine.uncordon();
    assert!(engine.submit(mk_request(&[1], 1)).is_ok());
}

#[test]
fn an_answer_ends_where_the_pool_does() {
    let config = EngineConfig {
        max_total_tokens: Some(64),
        ..mk_config(LLAMA)
    };
    let engine = start(config);
    let answer = generate(&engine, mk_request(&mk_prompt(1, 20), 500));
    assert_eq!(answer.finish, Some(FinishReason::Length));
    assert_eq!(answer.token_ids.len(), 44);
}

#[test]
fn stopping_ends_every_answer_retriably() {
    let engine = start(mk_config(LLAMA));
    let stream = engine
        .submit(mk_request(&mk_prompt(1, 30), 900))
        .expect("valid");
    engine.stop();
    let finish = collect(stream).finish;
    assert!(
        matches!(
            finish,
            Some(FinishReason::Abort {
                retriable: true,
                ..
            })
        ),
        "{finish:?}"
    );
    let late = engine
        .submit(mk_request(&[1], 1))
        .expect_err("the engine has stopped");
    assert!(late.is_retriable());
}

#[test]
fn an_engine_that_was_ended_has_given_its_memory_back() {
    let engine = start(mk_config(LLAMA));
    let (watched, stream) = (engine.clone(), engine.submit(mk_request(&[1], 900)));
    assert!(watched.health().is_ok());
    engine.end();
    assert!(watched.health().is_err());
    let finish = collect(stream.expect("valid")).finish;
    assert!(
        matches!(finish, Some(FinishReason::Abort { .. })),
        "{finish:?}"
    );
}

#[test]
fn logprobs_are_not_reported_unless_asked_for() {
    let engine = start(mk_config(LLAMA));
    let mut request = mk_request(&[1, 2], 3);
    request.logprobs = LogprobOptions::default();
    let answer = generate(&engine, request);
    assert!(answer.logprobs.is_empty() && answer.prompt_logprobs.is_empty());
}
