//! Faults between two engines: every request ends, with its answer or with a reason, and every
//! page, row and slot is returned.

use crate::harness::{alone, mk_prompt, mk_request, mk_sampled};
use crate::harness::{assert_nothing_held, assert_same, collect, metric};
use crate::pair::Pair;
use pd_engine::engine::{DisaggregationMode, EngineConfig, EngineHandle, FinishReason};
use pd_kv_transfer::{TransferConfig, TransportChoice};
use pd_protocol::BootstrapRoom;
use pd_protocol::Transport;
use pd_protocol::layout::KvDtype;
use pd_protocol::timeline::Stage;
use pd_verbs::loopback::Loopback;
use proptest::prelude::*;
use std::time::{Duration, Instant};

/// Nothing here takes so long.
const LIMIT: Duration = Duration::from_secs(60);
const TRANSPORTS: [TransportChoice; 2] = [
    TransportChoice::Only(Transport::Shm),
    TransportChoice::Only(Transport::Tcp),
];

fn with_transfer(config: EngineConfig, change: impl Fn(&mut TransferConfig)) -> EngineConfig {
    let mut config = config;
    match &mut config.mode {
        DisaggregationMode::Unified => {}
        DisaggregationMode::Prefill(prefill) => change(&mut prefill.transfer),
        DisaggregationMode::Decode(decode) => change(&mut decode.transfer),
    }
    config
}

fn has_reached(engine: &EngineHandle, room: u64, stage: Stage) -> bool {
    let room = BootstrapRoom::new(room).expect("a room");
    let timeline = engine.timeline(room);
    timeline.is_some_and(|timeline| timeline.events.iter().any(|event| event.stage == stage))
}

fn assert_aborted(finish: Option<&FinishReason>) {
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
}

#[test]
fn of_requests_with_injected_failures_each_ends_and_nothing_is_lost() {
    for transport in TRANSPORTS {
        let pair = Pair::start(transport, |config| {
            let config = EngineConfig {
                max_total_tokens: Some(4096),
                ..config
            };
            with_transfer(config, |transfer| transfer.test_failure_prob = 0.1)
        });
        let request = mk_sampled(&mk_prompt(3, 70), 5);
        let expected = alone(&request);
        let (mut answered, mut failed) = (0, 0);
        for batch in 0..10 {
            let rooms = 1 + batch * 10..=10 + batch * 10;
            let streams: Vec<_> = rooms.map(|room| pair.submit(&request, room)).collect();
            for (prefill, decode) in streams {
                let prefill = collect(prefill);
                let decode = collect(decode);
                if decode.finish == Some(FinishReason::Length) {
                    answered += 1;
                    assert_eq!(decode.token_ids, expected.token_ids);
                } else {
                    failed += 1;
                    assert_aborted(decode.finish.as_ref());
                }
                assert!(prefill.finish.is_some());
            }
        }
        assert!(
            answered > 0 && failed > 0,
            "{answered} answered, {failed} failed"
        );
        assert_nothing_held(&pair.prefill);
        assert_nothing_held(&pair.decode);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]
    #[test]
    fn readers_that_leave_at_any_time_leave_nothing_behind(
        transport in prop::sample::select(TRANSPORTS.to_vec()),
        leavers in prop::collection::vec((1..500usize, 0..4usize, any::<bool>()), 1..8),
    ) {
        let pair = Pair::start(transport, |config| config);
        for (seed, (len, events, prefill_first)) in (1u32..).zip(leavers) {
            let request = mk_request(&mk_prompt(seed, len), 300);
            let (prefill, mut decode) = pair.submit(&request, u64::from(seed));
            if prefill_first {
                drop(prefill);
                continue;
            }
            for _ in 0..events {
                decode.blocking_recv();
            }
            drop(decode);
            drop(prefill);
        }
        let request = mk_sampled(&mk_prompt(77, 40), 6);
        let (prefill, decode) = pair.submit(&request, 1000);
        prop_assert_eq!(collect(prefill).finish, Some(FinishReason::Length));
        let decode = collect(decode);
        prop_assert_eq!(decode.token_ids, alone(&request).token_ids);
        assert_nothing_held(&pair.prefill);
        assert_nothing_held(&pair.decode);
    }
}

#[test]
fn a_decode_that_stops_fails_the_rooms_of_its_prefill() {
    for transport in TRANSPORTS {
        let pair = Pair::start(transport, |config| config);
        // Long enough not to end before it is stopped.
        let request = mk_request(&mk_prompt(1, 600), 400);
        let (prefill, decode) = pair.submit(&request, 1);
        // Before that prefill cannot know whose request it is; its router would report it.
        while !has_reached(&pair.prefill, 1, Stage::PrefillBootstrapped) {
            std::thread::yield_now();
        }
        pair.decode.stop();
        assert_aborted(collect(decode).finish.as_ref());
        assert!(collect(prefill).finish.is_some());
        assert_nothing_held(&pair.prefill);
    }
}

#[test]
fn a_prefill_that_stops_fails_the_rooms_of_its_decode() {
    for transport in TRANSPORTS {
        let pair = Pair::start(transport, |config| config);
        let warm = mk_request(&mk_prompt(2, 20), 2);
        let (prefill, decode) = pair.submit(&warm, 1);
        assert_eq!(collect(prefill).finish, Some(FinishReason::Length));
        assert_eq!(collect(decode).finish, Some(FinishReason::Length));
        let request = mk_request(&mk_prompt(1, 900), 10);
        let (prefill, decode) = pair.submit(&request, 2);
        pair.prefill.stop();
        assert_aborted(collect(prefill).finish.as_ref());
        assert_aborted(collect(decode).finish.as_ref());
        assert_nothing_held(&pair.decode);
    }
}

#[test]
fn memory_of_an_aborted_request_waits_for_the_nic_that_writes_to_it() {
    const QUARANTINED: &str = r#"pdserve_kv_pages{state="quarantined"}"#;
    let nics = Loopback::new(&["prefill", "decode"]);
    let pair = Pair::start(TransportChoice::Only(Transport::Rdma), |config| {
        let device = match config.mode {
            DisaggregationMode::Prefill(_) => "prefill",
            DisaggregationMode::Decode(_) | DisaggregationMode::Unified => "decode",
        };
        with_transfer(config, |transfer| {
            transfer.rdma.library = Loopback::open;
            transfer.rdma.devices = vec![nics.name(device)];
        })
    });
    let request = mk_request(&mk_prompt(1, 100), 2);
    let (prefill, decode) = pair.submit(&request, 1);
    assert_eq!(collect(prefill).finish, Some(FinishReason::Length));
    assert_eq!(collect(decode).finish, Some(FinishReason::Length));

    nics.freeze("prefill", true);
    let request = mk_request(&mk_prompt(2, 100), 2);
    let (prefill, decode) = pair.submit(&request, 2);
    let began = Instant::now();
    while nics.held("prefill") == 0 {
        assert!(began.elapsed() < LIMIT, "prefill writes nothing");
        std::thread::yield_now();
    }
    drop((prefill, decode));
    for engine in [&pair.prefill, &pair.decode] {
        while metric(engine, QUARANTINED) < 1.0 {
            let role = engine.info().role;
            assert!(nics.held("prefill") > 0, "{role} keeps nothing back");
        }
    }
    // It shares none of the pages that are still written.
    let (prefill, decode) = pair.submit(&request, 3);
    nics.freeze("prefill", false);
    assert_eq!(collect(prefill).finish, Some(FinishReason::Length));
    assert_same(&collect(decode), &alone(&request));
    assert!(metric(&pair.decode, "pdserve_decode_cached_tokens_total") < 0.5);
    assert_nothing_held(&pair.prefill);
    assert_nothing_held(&pair.decode);
}

#[test]
fn a_decode_request_without_its_prefill_leg_ends_by_timeout() {
    let pair = Pair::start(TransportChoice::Only(Transport::Shm), |config| {
        with_transfer(config, |transfer| {
            transfer.bootstrap_timeout = Duration::from_millis(300);
            transfer.waiting_timeout = Duration::from_millis(300);
        })
    });
    let request = mk_request(&mk_prompt(1, 50), 10);
    let (prefill, decode) = pair.submit(&request, 1);
    assert_eq!(collect(prefill).finish, Some(FinishReason::Length));
    assert_eq!(collect(decode).finish, Some(FinishReason::Length));
    let only_decode = pair
        .decode
        .submit(pair.leg(&request, 2))
        .expect("a valid request");
    assert_aborted(collect(only_decode).finish.as_ref());
    let only_prefill = pair
        .prefill
        .submit(pair.leg(&request, 3))
        .expect("a valid request");
    assert_aborted(collect(only_prefill).finish.as_ref());
    assert!(metric(&pair.prefill, "pdserve_bootstrap_failed_reqs") > 0.5);
    assert_nothing_held(&pair.prefill);
    assert_nothing_held(&pair.decode);
}

#[test]
fn engines_whose_kv_means_different_things_do_not_pair() {
    let pair = Pair::start(TransportChoice::Auto, |config| {
        let config = with_transfer(config, |transfer| {
            transfer.bootstrap_timeout = Duration::from_secs(3);
        });
        match config.mode {
            DisaggregationMode::Decode(_) => EngineConfig {
                kv_cache_dtype: Some(KvDtype::Fp8E4m3),
                ..config
            },
            DisaggregationMode::Unified | DisaggregationMode::Prefill(_) => config,
        }
    });
    assert_ne!(pair.prefill.info().kv_compat, pair.decode.info().kv_compat);
    let (prefill, decode) = pair.submit(&mk_request(&mk_prompt(1, 50), 10), 1);
    let finish = collect(decode).finish;
    let reason = match &finish {
        Some(FinishReason::Abort { reason, .. }) => reason.as_str(),
        Some(FinishReason::Stop { .. } | FinishReason::Length) | None => "none",
    };
    assert!(reason.contains("kv_cache_dtype"), "{reason}");
    drop(prefill);
    assert_nothing_held(&pair.prefill);
    assert_nothing_held(&pair.decode);
}

#[test]
fn more_requests_than_rows_wait_their_turn() {
    let pair = Pair::start(TransportChoice::Only(Transport::Tcp), |config| {
        EngineConfig {
            max_running_requests: 2,
            max_total_tokens: Some(512),
            ..config
        }
    });
    let request = mk_sampled(&mk_prompt(4, 60), 12);
    let expected = alone(&request);
    let streams: Vec<_> = (1..=24).map(|room| pair.submit(&request, room)).collect();
    for (prefill, decode) in streams {
        let mut answer = collect(decode);
        answer.prompt_logprobs = collect(prefill).prompt_logprobs;
        assert_same(&answer, &expected);
    }
    assert_nothing_held(&pair.prefill);
    assert_nothing_held(&pair.decode);
}
