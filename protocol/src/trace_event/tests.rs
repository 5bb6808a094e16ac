//! Facts about traces: their form, and that spans of a track nest.

use super::*;
use crate::BootstrapRoom;
use proptest::prelude::*;
use serde_json::{Value, json};

const STAGES: [Stage; 14] = [
    Stage::RouterAccepted,
    Stage::RouterDispatched,
    Stage::RouterFirstByte,
    Stage::RouterDone,
    Stage::PrefillQueued,
    Stage::PrefillBootstrapped,
    Stage::ChunkComputed,
    Stage::ChunkSent,
    Stage::LastWrite,
    Stage::DecodeQueued,
    Stage::DecodePreallocated,
    Stage::TransferDone,
    Stage::FirstStep,
    Stage::LastToken,
];

fn event(stage: Stage, at_us: u64, took_us: Option<u64>) -> StageEvent {
    StageEvent {
        stage,
        at_unix_ns: 1_795_000_000_000_000_000 + at_us * 1000,
        duration_ns: took_us.map(|took| took * 1000),
        tokens: None,
        bytes: None,
        state_bytes: None,
    }
}

fn timeline(process: &str, events: Vec<StageEvent>) -> RequestTimeline {
    RequestTimeline {
        room: BootstrapRoom::new(7).unwrap(),
        process: process.to_owned(),
        events,
    }
}

fn spans(trace: &Value) -> Vec<&Value> {
    let events = trace["traceEvents"].as_array().unwrap();
    events.iter().filter(|event| event["ph"] == "X").collect()
}

#[test]
fn a_request_is_phases_in_each_process_and_what_overlaps_below() {
    let chunk = |at, took| StageEvent {
        tokens: Some(64),
        ..event(Stage::ChunkComputed, at, Some(took))
    };
    let sent = |at, took| StageEvent {
        bytes: Some(4096),
        ..event(Stage::ChunkSent, at, Some(took))
    };
    let prefill = vec![
        event(Stage::PrefillQueued, 20, None),
        event(Stage::PrefillBootstrapped, 30, None),
        chunk(130, 95),
        chunk(230, 100),
        sent(260, 120),
        sent(280, 40),
        event(Stage::LastWrite, 290, None),
    ];
    let router = vec![
        event(Stage::RouterAccepted, 0, None),
        event(Stage::RouterDispatched, 10, None),
    ];
    let trace = Trace::of_request(&[timeline("router", router), timeline("prefill", prefill)]);
    let trace = serde_json::to_value(&trace).unwrap();
    let found: Vec<Value> = spans(&trace)
        .into_iter()
        .map(|span| {
            json!([
                span["pid"],
                span["tid"],
                span["name"],
                span["ts"],
                span["dur"]
            ])
        })
        .collect();
    let wanted = [
        json!([1, 1, "request", 0.0, 10.0]),
        json!([1, 1, "choose a pair", 0.0, 10.0]),
        json!([2, 1, "request", 20.0, 270.0]),
        json!([2, 1, "wait for decode's pages", 20.0, 10.0]),
        json!([2, 1, "compute the prompt", 30.0, 200.0]),
        json!([2, 1, "send the rest", 230.0, 60.0]),
        json!([2, 2, "chunk", 35.0, 95.0]),
        json!([2, 2, "chunk", 130.0, 100.0]),
        json!([2, 3, "send", 140.0, 120.0]),
        json!([2, 4, "send", 240.0, 40.0]),
    ];
    assert_eq!(found, wanted);
    assert_eq!(
        trace["otherData"]["began_at_unix_ns"],
        "1795000000000000000"
    );
    let names: Vec<&Value> = trace["traceEvents"].as_array().unwrap()[..7]
        .iter()
        .map(|event| &event["args"]["name"])
        .collect();
    let wanted = [
        "router",
        "request",
        "prefill",
        "request",
        "request: compute",
        "request: transfer",
        "request: transfer",
    ];
    assert_eq!(names, wanted);
}

#[test]
fn nothing_recorded_is_an_empty_trace() {
    let trace = Trace::of_request(&[timeline("router", Vec::new())]);
    let trace = serde_json::to_value(&trace).unwrap();
    assert_eq!(spans(&trace).len(), 0);
}

proptest! {
    #[test]
    fn spans_of_a_track_lie_beside_each_other_or_one_in_another(
        events in proptest::collection::vec((0..STAGES.len(), 0u64..500, proptest::option::of(0u64..200)), 0..40),
    ) {
        let events = events.into_iter().map(|(stage, at, took)| event(STAGES[stage], at + 200, took));
        let trace = Trace::of_request(&[timeline("all", events.collect())]);
        let spans = &trace.spans;
        for (a, b) in spans.iter().flat_map(|a| spans.iter().map(move |b| (a, b))) {
            prop_assert!(a.begin_unix_ns <= a.end_unix_ns, "{a:?}");
            let beside = a.end_unix_ns <= b.begin_unix_ns || b.end_unix_ns <= a.begin_unix_ns;
            let holds = |a: &Span, b: &Span| a.begin_unix_ns <= b.begin_unix_ns && b.end_unix_ns <= a.end_unix_ns;
            prop_assert!(a.track != b.track || beside || holds(a, b) || holds(b, a), "{a:?} {b:?}");
        }
    }
}
