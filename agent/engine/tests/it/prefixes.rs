//! Decode's prefix cache: KV that decode has is not sent again, and no answer changes by it.

use crate::draft_layer::nextn;
use crate::grammar::{alone_by, by, mk_free, people};
use crate::harness::{Answer, LLAMA, MODELS, QWEN3_5, alone_on, collect, metric};
use crate::harness::{assert_nothing_held, assert_same, comes_to_say, mk_config, mk_prompt};
use crate::harness::{generate, mk_sampled, mk_unpenalised, ngram};
use crate::pair::{Pair, mk_bootstrap};
use pd_engine::engine::{DisaggregationMode, EngineConfig, FinishReason, GenerateRequest};
use pd_kv_transfer::TransportChoice;
use pd_protocol::Transport;
use pd_protocol::layout::KvDtype;
use pd_protocol::ports::FAKE_BOOTSTRAP_HOST;
use proptest::prelude::*;
use std::time::Duration;

const BYTES: &str = "pdserve_kv_transfer_bytes_total";
const CACHED: &str = "pdserve_decode_cached_tokens_total";
const SKIPPED: &str = "pdserve_kv_transfer_skipped_bytes_total";
const SHM: TransportChoice = TransportChoice::Only(Transport::Shm);
const TCP: TransportChoice = TransportChoice::Only(Transport::Tcp);

/// Without prompt logprobs, so that prefill uses its cached prefixes.
fn mk(prompt: &[u32], max_new_tokens: u32) -> GenerateRequest {
    let mut request = mk_unpenalised(prompt, max_new_tokens);
    request.logprobs.logprob_start_len = None;
    request
}

fn mk_pair(transport: TransportChoice, model: &str, is_cached: bool) -> Pair {
    Pair::start(transport, |config| EngineConfig {
        model_path: mk_config(model).model_path,
        disable_radix_cache: !is_cached && matches!(config.mode, DisaggregationMode::Decode(_)),
        ..config
    })
}

fn serve(pair: &Pair, request: &GenerateRequest, room: u64) -> Answer {
    let (prefill, decode) = pair.submit(request, room);
    collect(prefill);
    collect(decode)
}

/// Three turns of a chat, each of all before it; answers, and the bytes that decode received for each.
fn chat(pair: &Pair, turns: u64) -> (Vec<Answer>, Vec<f64>) {
    let mut prompt = mk_prompt(5, 150);
    let (mut answers, mut bytes) = (Vec::new(), vec![0.0]);
    for (turn, seed) in (1..=turns).zip(50..) {
        let answer = serve(pair, &mk(&prompt, 40), turn);
        prompt.extend(&answer.token_ids);
        prompt.extend(mk_prompt(seed, 20));
        answers.push(answer);
        bytes.push(metric(&pair.decode, BYTES));
    }
    let of_turns = bytes.windows(2).map(|pair| pair[1] - pair[0]);
    (answers, of_turns.collect())
}

#[test]
fn a_chat_sends_each_token_s_kv_once() {
    for model in MODELS {
        let (expected, whole) = chat(&mk_pair(TCP, model, false), 3);
        let pair = mk_pair(TCP, model, true);
        let (answers, bytes) = chat(&pair, 3);
        assert_eq!(answers, expected, "{model}");
        assert!((bytes[0] - whole[0]).abs() < 0.5, "{model}: {bytes:?}");
        for turn in [1, 2] {
            assert!(bytes[turn] < whole[turn], "{model}: {bytes:?} {whole:?}");
        }
        // Of 210 and 270 tokens, all pages of the turn before with its answer, whose last token has no KV.
        let cached = metric(&pair.decode, CACHED);
        assert!((cached - (176.0 + 240.0)).abs() < 0.5, "{model}: {cached}");
        let skipped = metric(&pair.prefill, SKIPPED);
        let spared: f64 = whole.iter().sum::<f64>() - bytes.iter().sum::<f64>();
        assert!((skipped - spared).abs() < 0.5, "{model}: {skipped}");
        assert_nothing_held(&pair.prefill);
        assert_nothing_held(&pair.decode);
    }
}

/// Rooms of the same prompt at once.
fn choices(pair: &Pair, n: u32) -> Vec<Answer> {
    let requests = (0..n).map(|choice| GenerateRequest {
        choice,
        ..mk(&mk_prompt(5, 400), 20)
    });
    let requests: Vec<_> = requests.collect();
    let streams = pair.submit_all(&requests);
    streams
        .into_iter()
        .map(|(prefill, decode)| {
            collect(prefill);
            collect(decode)
        })
        .collect()
}

#[test]
fn the_prompt_of_many_choices_comes_once() {
    for (transport, model) in [(SHM, LLAMA), (TCP, LLAMA), (TCP, QWEN3_5)] {
        let off = mk_pair(transport, model, false);
        let expected = choices(&off, 8);
        let pair = mk_pair(transport, model, true);
        for (answer, expected) in choices(&pair, 8).iter().zip(&expected) {
            assert_same(answer, expected);
        }
        let cached = metric(&pair.decode, CACHED);
        assert!((cached - 7.0 * 384.0).abs() < 0.5, "{cached}");
        let bytes = [&off, &pair].map(|pair| metric(&pair.decode, BYTES));
        let skipped = metric(&pair.prefill, SKIPPED);
        assert!((bytes[0] - bytes[1] - skipped).abs() < 0.5, "{bytes:?}");
        assert!(metric(&off.decode, CACHED) < 0.5);
        assert_nothing_held(&pair.prefill);
        assert_nothing_held(&pair.decode);
    }
}

#[test]
fn choices_go_on_where_the_room_that_they_wait_for_is_given_up() {
    let pair = mk_pair(TCP, LLAMA, true);
    let prompt = mk_prompt(5, 400);
    // Decode alone has the first: prefill will never send it.
    let first = pair.leg(&mk(&prompt, 20), 1);
    let first = pair.decode.submit(first).expect("a valid request");
    let streams: Vec<_> = (2..5)
        .map(|room| pair.submit(&mk(&prompt, 20), room))
        .collect();
    let waiting = "pdserve_num_decode_prealloc_queue_reqs";
    assert!(comes_to_say(&pair.decode, waiting, 3.0));
    drop(first);
    let expected = alone_on(LLAMA, &mk(&prompt, 20));
    for (prefill, decode) in streams {
        collect(prefill);
        assert_same(&collect(decode), &expected);
    }
    assert_nothing_held(&pair.prefill);
    assert_nothing_held(&pair.decode);
}

#[test]
fn what_a_played_transfer_leaves_is_not_shared() {
    let pair = mk_pair(TCP, LLAMA, true);
    let request = mk(&mk_prompt(5, 100), 5);
    let played = GenerateRequest {
        bootstrap: mk_bootstrap(FAKE_BOOTSTRAP_HOST, 0, 9),
        ..request.clone()
    };
    assert_eq!(generate(&pair.decode, played).token_ids.len(), 5);
    assert_same(&serve(&pair, &request, 1), &alone_on(LLAMA, &request));
    assert!(metric(&pair.decode, CACHED) < 0.5);
}

#[test]
fn kv_in_e4m3_is_shared_alike() {
    let pairs = [true, false].map(|disable_radix_cache| {
        Pair::start(TCP, |config| EngineConfig {
            kv_cache_dtype: Some(KvDtype::Fp8E4m3),
            disable_radix_cache: disable_radix_cache
                && matches!(config.mode, DisaggregationMode::Decode(_)),
            ..config
        })
    });
    let [(expected, whole), (answers, bytes)] = pairs.each_ref().map(|pair| chat(pair, 3));
    assert_eq!(answers, expected);
    assert!(bytes[2] * 3.0 < whole[2], "{bytes:?} {whole:?}");
}

#[test]
fn kv_of_another_prompt_serves_its_request_alone() {
    let pair = mk_pair(TCP, LLAMA, true);
    let [yesterday, today] = [5, 6].map(|seed| mk(&mk_prompt(seed, 150), 20));
    // As where the legs of a request render its chat on two sides of midnight.
    let legs = [(&pair.prefill, &yesterday), (&pair.decode, &today)];
    let legs = legs.map(|(engine, request)| engine.submit(pair.leg(request, 1)).expect("a leg"));
    for answer in legs.map(collect) {
        assert_eq!(answer.finish, Some(FinishReason::Length));
    }
    for room in 2..4 {
        assert_same(
            &serve(&pair, &today, room),
            &alone_on(LLAMA, &today).without_prompt(),
        );
    }
    let cached = metric(&pair.decode, CACHED);
    assert!(
        (cached - 144.0).abs() < 0.5,
        "the third finds the second's: {cached}"
    );
    assert_nothing_held(&pair.decode);
}

#[test]
fn choices_by_a_grammar_share_a_prompt_and_jump() {
    let pair = mk_pair(SHM, LLAMA, true);
    let mut request = mk_free(5, 80);
    request.input_ids = mk_prompt(9, 200);
    request.logprobs.token_ids_logprob = vec![7, 40].into();
    let choices: Vec<_> = (0..4)
        .map(|choice| GenerateRequest {
            choice,
            ..request.clone()
        })
        .collect();
    let streams = (1..).zip(&choices).map(|(room, choice)| {
        [&pair.prefill, &pair.decode].map(|engine| {
            let leg = pair.leg(&by(engine, &people(), choice), room);
            engine.submit(leg).expect("a leg")
        })
    });
    let streams: Vec<_> = streams.collect();
    for ([prefill, decode], choice) in streams.into_iter().zip(&choices) {
        let (first, mut answer) = (collect(prefill), collect(decode));
        // The row of a room has no place for them.
        assert!(answer.logprobs[0].asked.is_empty());
        answer.logprobs[0]
            .asked
            .clone_from(&first.logprobs[0].asked);
        assert_same(&answer, &alone_by(&people(), choice));
    }
    for name in [CACHED, "pdserve_grammar_jump_accepted_tokens_total"] {
        assert!(metric(&pair.decode, name) > 0.5, "{name}");
    }
    assert_nothing_held(&pair.prefill);
    assert_nothing_held(&pair.decode);
}

#[test]
fn a_flush_drops_what_decode_has() {
    let pair = mk_pair(SHM, LLAMA, true);
    let request = mk(&mk_prompt(5, 100), 5);
    let first = serve(&pair, &request, 1);
    assert_nothing_held(&pair.decode);
    let second = serve(&pair, &request, 2);
    assert_same(&second, &first);
    assert!(metric(&pair.decode, CACHED) < 0.5, "it was flushed");
    serve(&pair, &request, 3);
    assert!((metric(&pair.decode, CACHED) - 96.0).abs() < 0.5);
}

#[test]
fn speculation_over_cached_prefixes_changes_no_bit() {
    for (model, speculative) in [(LLAMA, ngram(3)), (QWEN3_5, nextn(3))] {
        let expected = chat(&mk_pair(TCP, model, false), 3).0;
        let pair = Pair::start(TCP, |config| EngineConfig {
            model_path: mk_config(model).model_path,
            speculative: speculative.clone(),
            ..config
        });
        let (answers, _) = chat(&pair, 3);
        for (answer, expected) in answers.iter().zip(&expected) {
            assert_eq!(answer.token_ids, expected.token_ids, "{model}");
            assert_eq!(answer.logprobs, expected.logprobs, "{model}");
        }
        assert!(metric(&pair.decode, CACHED) > 300.0);
        assert_nothing_held(&pair.decode);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn prompts_that_share_get_their_answers_however_rooms_fail_and_pages_run_out(
        model in prop::sample::select(MODELS.to_vec()),
        transport in prop::sample::select(vec![SHM, TCP]),
        page_size in prop::sample::select(vec![1u32, 16]),
        pages_of in prop::sample::select(vec![320u32, 1024]),
        asked in prop::collection::vec((0..3u32, 30..120usize, 1..40u32, 0..3u8), 4..14),
    ) {
        let pair = Pair::start(transport, |config| {
            let mut config = EngineConfig {
                model_path: mk_config(model).model_path,
                page_size,
                max_total_tokens: Some(pages_of),
                ..config
            };
            let transfer = match &mut config.mode {
                DisaggregationMode::Unified => unreachable!("a pair has no such worker"),
                DisaggregationMode::Prefill(prefill) => &mut prefill.transfer,
                DisaggregationMode::Decode(decode) => &mut decode.transfer,
            };
            transfer.test_failure_prob = 0.15;
            // A room that fails before its peer is known is over for that peer after this.
            transfer.bootstrap_timeout = Duration::from_secs(2);
            config
        });
        let requests: Vec<_> = asked
            .iter()
            .map(|&(seed, len, new_tokens, _)| mk(&mk_prompt(seed, 120)[..len], new_tokens))
            .collect();
        let streams = pair.submit_all(&requests);
        for ((stream, request), (.., leaves)) in streams.into_iter().zip(&requests).zip(&asked) {
            let (prefill, decode) = stream;
            if *leaves == 0 {
                drop((prefill, decode));
                continue;
            }
            let answer = collect(decode);
            prop_assert!(collect(prefill).finish.is_some());
            if matches!(answer.finish, Some(FinishReason::Length)) {
                assert_same(&answer, &alone_on(model, request));
            }
        }
        assert_nothing_held(&pair.prefill);
        assert_nothing_held(&pair.decode);
    }
}

#[test]
fn penalties_and_prompt_logprobs_are_those_of_one_engine() {
    let pair = mk_pair(TCP, LLAMA, true);
    let request = mk_sampled(&mk_prompt(8, 120), 12);
    let expected = alone_on(LLAMA, &request);
    for room in 1..4 {
        let (prefill, decode) = pair.submit(&request, room);
        let prompt_logprobs = collect(prefill).prompt_logprobs;
        let answer = Answer {
            prompt_logprobs,
            ..collect(decode)
        };
        assert_same(&answer, &expected);
    }
    let cached = metric(&pair.decode, CACHED);
    assert!((cached - 2.0 * 112.0).abs() < 0.5, "{cached}");
}
