//! Facts about recordings: what is in them, and that they end.

use super::*;
use crate::command::RequestId;
use crate::step::{StepId, StepRow};
use crate::timeline::stage_now;
use pd_protocol::BootstrapRoom;
use pd_protocol::timeline::Stage;
use serde_json::Value;
use std::time::Duration;

fn row(tokens: usize, drafts: usize) -> StepRow {
    StepRow {
        id: RequestId(1),
        positions: 0..tokens,
        prompt_logprobs: 0,
        draws: true,
        asked: 0,
        drafts: vec![0; drafts],
    }
}

fn step(rows: Vec<StepRow>) -> Step {
    Step {
        id: StepId(1),
        rows,
    }
}

fn names(trace: &Trace) -> Vec<String> {
    let trace = serde_json::to_value(trace).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let spans = events.iter().filter(|event| event["ph"] == "X");
    let name = |span: &Value| span["name"].as_str().unwrap().to_owned();
    spans.map(name).collect()
}

#[test]
fn a_profile_has_the_turns_the_steps_and_the_rooms_since_its_start() {
    let (profiler, timelines) = (Arc::new(Profiler::default()), Timelines::default());
    let [before, since] = [1, 2].map(|room| BootstrapRoom::new(room).unwrap());
    timelines.record(before, stage_now(Stage::DecodeQueued));
    let mut clock = PhaseClock::new(profiler.clone());
    clock.begin();
    clock.ended(Phase::Receive);

    profiler.start().unwrap();
    // The turn in which it starts is not in it.
    clock.ended(Phase::Settle);
    clock.begin();
    clock.ended(Phase::Receive);
    clock.ended(Phase::Wait);
    let now = Instant::now();
    for rows in [
        vec![row(1, 0), row(4, 3)],
        vec![row(9, 0)],
        vec![row(9, 0), row(1, 0)],
    ] {
        clock.computed(&step(rows), now, now + Duration::from_millis(1));
    }
    timelines.record(since, stage_now(Stage::DecodeQueued));
    timelines.record(since, stage_now(Stage::DecodePreallocated));
    let trace = profiler.stop(&timelines).unwrap();

    let wanted = [
        "receive",
        "wait for the device",
        "decode",
        "prefill",
        "prefill and decode",
        "request",
        "reserve pages",
    ];
    assert_eq!(names(&trace), wanted);
    clock.begin();
    clock.ended(Phase::Receive);
    assert_eq!(profiler.stop(&timelines).unwrap_err(), ProfileError::IsOff);
}

#[test]
fn one_profile_is_recorded_at_a_time_and_is_bounded() {
    let profiler = Arc::new(Profiler::default());
    profiler.start().unwrap();
    assert_eq!(profiler.start(), Err(ProfileError::IsOn));
    let mut clock = PhaseClock::new(profiler.clone());
    clock.begin();
    for _ in 0..SPANS_MAX + 5 {
        clock.ended(Phase::Advance);
    }
    let trace = profiler.stop(&Timelines::default()).unwrap();
    assert_eq!(names(&trace).len(), SPANS_MAX);
    let trace = serde_json::to_value(&trace).unwrap();
    assert_eq!(trace["otherData"]["spans_left_out"], "5");
}
