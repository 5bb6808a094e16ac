//! Grammars over a prefill and a decode engine, each of which compiles them for itself.

use super::{alone_by, by, mk_free, people};
use crate::harness::{LLAMA, assert_nothing_held, assert_same, collect, metric, mk_config, start};
use crate::pair::Pair;
use pd_engine::engine::{EngineConfig, EngineHandle, FinishReason};
use pd_engine::grammar::GrammarSource;
use pd_kv_transfer::TransportChoice;
use pd_protocol::Transport;

#[test]
fn a_pair_answers_as_one_engine() {
    for transport in [Transport::Shm, Transport::Tcp] {
        let pair = Pair::start(TransportChoice::Only(transport), |config| config);
        for (room, source) in (1..).zip([people(), GrammarSource::Choice(vec!["x".to_owned()])]) {
            let request = mk_free(5, 80);
            let legs = [&pair.prefill, &pair.decode].map(|engine| {
                let leg = pair.leg(&by(engine, &source, &request), room);
                engine.submit(leg).expect("a valid request")
            });
            let [prefill, decode] = legs.map(collect);
            let expected = alone_by(&source, &request);
            assert_eq!(prefill.token_ids, expected.token_ids[..1]);
            assert_same(&decode, &expected);
        }
        assert_nothing_held(&pair.prefill);
        assert_nothing_held(&pair.decode);
    }
}

#[test]
fn a_first_token_that_is_not_of_the_grammar_ends_the_answer() {
    let pair = Pair::start(TransportChoice::Only(Transport::Shm), |config| config);
    let request = mk_free(5, 80);
    let leg = |engine: &EngineHandle, text: &str| {
        let source = GrammarSource::Choice(vec![text.to_owned()]);
        let leg = pair.leg(&by(engine, &source, &request), 1);
        engine.submit(leg).expect("a valid request")
    };
    let (prefill, decode) = (leg(&pair.prefill, "a"), leg(&pair.decode, "b"));
    collect(prefill);
    let finish = collect(decode).finish;
    let Some(FinishReason::Abort { reason, .. }) = &finish else {
        panic!("{finish:?}");
    };
    assert!(
        reason.contains("is not of the request's grammar"),
        "{reason}"
    );
    assert_nothing_held(&pair.decode);
}

#[test]
fn a_retraction_loses_no_place_in_a_grammar() {
    let requests: Vec<_> = (0..5).map(|seed| mk_free(seed, 150)).collect();
    let small = |config| EngineConfig {
        max_total_tokens: Some(256),
        ..config
    };
    let engine = start(small(mk_config(LLAMA)));
    let pair = Pair::start(TransportChoice::Only(Transport::Shm), small);
    let mut streams = Vec::new();
    for (room, request) in (1..).zip(&requests) {
        let unified = by(&engine, &people(), request);
        streams.push(engine.submit(unified).expect("a valid request"));
        let prefill = pair.leg(&by(&pair.prefill, &people(), request), room);
        let _ = pair
            .prefill
            .submit(prefill)
            .map(|stream| streams.push(stream));
        let decode = pair.leg(&by(&pair.decode, &people(), request), room);
        streams.push(pair.decode.submit(decode).expect("a valid request"));
    }
    let mut answers = streams.into_iter().map(collect);
    for request in &requests {
        let expected = alone_by(&people(), request);
        assert_same(&answers.next().expect("unified"), &expected);
        answers.next();
        assert_same(&answers.next().expect("decode"), &expected);
    }
    for engine in [&engine, &pair.decode] {
        assert!(metric(engine, "pdserve_num_retractions_total") > 0.5);
        assert_nothing_held(engine);
    }
}
