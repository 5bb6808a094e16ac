//! Prefill and decode, each by itself, over the fake transfer: queues, stages, refusals.

use crate::harness::{alone, assert_nothing_held, assert_same, collect, comes_to_say, generate};
use crate::harness::{metric, mk_prompt, mk_request, mk_unpenalised, settle, start};
use crate::pair::{Pair, mk_bootstrap, mk_decode, mk_prefill};
use pd_engine::engine::{EngineConfig, EngineHandle, FinishReason, GenerateRequest, SubmitError};
use pd_kv_transfer::TransportChoice;
use pd_protocol::BootstrapRoom;
use pd_protocol::Transport;
use pd_protocol::ports::FAKE_BOOTSTRAP_HOST;
use pd_protocol::timeline::Stage;

fn stages(engine: &EngineHandle, room: u64) -> Vec<Stage> {
    let timeline = engine.timeline(BootstrapRoom::new(room).expect("a room"));
    timeline
        .expect("the room is remembered")
        .events
        .iter()
        .map(|event| event.stage)
        .collect()
}

#[test]
fn prefill_answers_its_leg_when_the_transfer_has_ended() {
    let engine = start(mk_prefill(TransportChoice::Fake, 0));
    let mut request = mk_request(&mk_prompt(1, 600), 50);
    request.bootstrap = mk_bootstrap("127.0.0.1", 0, 7);
    request.logprobs.logprob_start_len = Some(0);
    let answer = generate(&engine, request);
    assert_eq!(answer.finish, Some(FinishReason::Length));
    assert_eq!(answer.token_ids.len(), 1);
    assert_eq!(answer.prompt_logprobs.len(), 600);
    assert_nothing_held(&engine);
    let expected = [
        Stage::PrefillQueued,
        Stage::PrefillBootstrapped,
        Stage::ChunkComputed,
    ];
    assert_eq!(stages(&engine, 7)[..3], expected);
    assert_eq!(stages(&engine, 7).last(), Some(&Stage::LastWrite));
}

/// Its room is refused as one that was used, not as one in use.
#[test]
fn no_request_is_in_flight_once_the_end_of_its_answer_is_read() {
    let engine = start(mk_prefill(TransportChoice::Fake, 0));
    for room in 1..200 {
        let mut request = mk_request(&mk_prompt(room, 20), 1);
        request.bootstrap = mk_bootstrap("127.0.0.1", 0, room.into());
        generate(&engine, request);
        assert_eq!(engine.drain_status().in_flight, 0, "after room {room}");
    }
}

#[test]
fn prefill_computes_the_prompt_of_many_rooms_once() {
    let engine = start(mk_prefill(TransportChoice::Fake, 0));
    let room = |room: u64| {
        let mut request = mk_request(&mk_prompt(3, 400), 50);
        request.bootstrap = mk_bootstrap("127.0.0.1", 0, room);
        request
    };
    let streams: Vec<_> = (1..6)
        .map(|nr| engine.submit(room(nr)).expect("a place in the queue"))
        .collect();
    let answers: Vec<_> = streams.into_iter().map(collect).collect();
    let cached: Vec<u32> = answers.iter().map(|answer| answer.cached_tokens).collect();
    assert_eq!(cached, [0, 384, 384, 384, 384]);
    let firsts = answers.iter().map(|answer| &answer.token_ids);
    assert!(firsts.clone().all(|first| *first == answers[0].token_ids));
    assert_nothing_held(&engine);
}

#[test]
fn decode_goes_on_from_a_received_first_token() {
    let engine = start(mk_decode(TransportChoice::Auto));
    let mut request = mk_request(&mk_prompt(1, 60), 10);
    request.bootstrap = mk_bootstrap(FAKE_BOOTSTRAP_HOST, 0, 8);
    let answer = generate(&engine, request);
    assert_eq!(answer.finish, Some(FinishReason::Length));
    assert_eq!(answer.token_ids.len(), 10);
    assert_eq!(answer.token_ids[0], 0, "the fake transfer's first token");
    assert_nothing_held(&engine);
    assert_eq!(
        stages(&engine, 8),
        [
            Stage::DecodeQueued,
            Stage::DecodePreallocated,
            Stage::TransferDone,
            Stage::FirstStep,
            Stage::LastToken
        ]
    );
}

/// One request alone leaves decode time to launch steps early, despite its work between steps.
#[test]
fn decode_launches_steps_ahead() {
    for (overlap, transport) in [
        (true, TransportChoice::Fake),
        (false, TransportChoice::Fake),
        (true, TransportChoice::Only(Transport::Shm)),
        (true, TransportChoice::Only(Transport::Tcp)),
    ] {
        let config = |config| EngineConfig {
            overlap_schedule: Some(overlap),
            ..config
        };
        let request = mk_unpenalised(&mk_prompt(1, 60), 40);
        let ahead = if transport == TransportChoice::Fake {
            let engine = start(config(mk_decode(transport)));
            let bootstrap = mk_bootstrap("127.0.0.1", 0, 7);
            generate(
                &engine,
                GenerateRequest {
                    bootstrap,
                    ..request
                },
            );
            metric(&engine, "pdserve_num_overlapped_steps_total")
        } else {
            let pair = Pair::start(transport, config);
            let (prefill, decode) = pair.submit(&request, 7);
            collect(prefill);
            assert_same(
                &collect(decode).without_prompt(),
                &alone(&request).without_prompt(),
            );
            metric(&pair.decode, "pdserve_num_overlapped_steps_total")
        };
        // 39 tokens are decode's, and the first step is scheduled.
        assert_eq!(ahead > 35.0, overlap, "{transport:?}: {ahead}");
    }
}

#[test]
fn prefill_computes_a_chunk_while_the_one_before_it_is_in_flight() {
    for overlap in [true, false] {
        let pair = Pair::start(TransportChoice::Only(Transport::Tcp), |config| {
            EngineConfig {
                chunked_prefill_size: Some(16),
                page_size: 16,
                overlap_schedule: Some(overlap),
                ..config
            }
        });
        let request = mk_unpenalised(&mk_prompt(1, 8 * 16), 4);
        let (prefill, decode) = pair.submit(&request, 7);
        collect(prefill);
        let answer = collect(decode).without_prompt();
        assert_same(&answer, &alone(&request).without_prompt());
        let steps = metric(&pair.prefill, "pdserve_num_overlapped_steps_total");
        assert_eq!(steps > 6.5, overlap, "{steps} of 8 chunks");
    }
}

#[test]
fn a_request_that_its_first_token_ends_takes_no_step() {
    let engine = start(mk_decode(TransportChoice::Fake));
    let mut request = mk_request(&mk_prompt(1, 60), 1);
    request.bootstrap = mk_bootstrap("127.0.0.1", 0, 9);
    let answer = generate(&engine, request);
    assert_eq!(answer.token_ids, [0]);
    settle(&engine);
    assert!(metric(&engine, "pdserve_num_steps_total") < 0.5);
    assert_nothing_held(&engine);
}

#[test]
fn decode_retracts_to_host_memory_and_comes_back() {
    let config = EngineConfig {
        max_total_tokens: Some(256),
        ..mk_decode(TransportChoice::Fake)
    };
    let engine = start(config);
    let mk = |room: u64| {
        let mut request = mk_request(&mk_prompt(u32::try_from(room).expect("small"), 30), 150);
        request.bootstrap = mk_bootstrap("127.0.0.1", 0, room);
        request
    };
    let streams: Vec<_> = (1..=5)
        .map(|room| engine.submit(mk(room)).expect("a valid request"))
        .collect();
    for (room, stream) in (1..).zip(streams) {
        let answer = collect(stream);
        assert_eq!(answer.finish, Some(FinishReason::Length));
        assert_eq!(answer.token_ids.len(), 150, "room {room}");
    }
    assert!(metric(&engine, "pdserve_num_retractions_total") > 0.5);
    assert_nothing_held(&engine);
}

#[test]
fn decode_reports_what_waits_for_its_memory() {
    let config = EngineConfig {
        max_total_tokens: Some(256),
        ..mk_decode(TransportChoice::Fake)
    };
    let engine = start(config);
    let streams: Vec<_> = (1..=2)
        .map(|room| {
            let mut request = mk_request(&mk_prompt(1, 100), 150);
            request.bootstrap = mk_bootstrap("127.0.0.1", 0, room);
            engine.submit(request).expect("a valid request")
        })
        .collect();
    assert!(comes_to_say(&engine, "pdserve_num_queue_tokens", 100.0));
    drop(streams);
    assert_nothing_held(&engine);
}

#[test]
fn a_room_in_use_is_refused_without_harm_to_the_first() {
    let engine = start(mk_decode(TransportChoice::Fake));
    let mut request = mk_request(&mk_prompt(1, 30), 600);
    request.bootstrap = mk_bootstrap("127.0.0.1", 0, 9);
    let first = engine.submit(request.clone()).expect("a valid request");
    let room = BootstrapRoom::new(9).expect("a room");
    assert_eq!(
        engine.submit(request).err(),
        Some(SubmitError::RoomInUse(room))
    );
    assert_eq!(collect(first).token_ids.len(), 600);
}

#[test]
fn a_worker_without_bootstrap_fields_refuses() {
    let engine = start(mk_prefill(TransportChoice::Fake, 0));
    let refused = engine.submit(mk_request(&[1], 1)).expect_err("refused");
    assert_eq!(refused, SubmitError::BootstrapMissing { role: "prefill" });
}
