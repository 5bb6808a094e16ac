//! Facts about the drawing.

use super::*;
use pd_protocol::BootstrapRoom;

fn event(stage: Stage, at_ms: u64, took_ms: Option<u64>) -> StageEvent {
    StageEvent {
        stage,
        at_unix_ns: 1_000_000_000 + at_ms * 1_000_000,
        duration_ns: took_ms.map(|ms| ms * 1_000_000),
        tokens: None,
        bytes: None,
        state_bytes: None,
    }
}

#[test]
fn stages_of_all_processes_share_one_axis() {
    let room = BootstrapRoom::new(7).unwrap();
    let of = |process: &str, events| RequestTimeline {
        room,
        process: process.to_owned(),
        events,
    };
    let sent = StageEvent {
        bytes: Some(30_000_000),
        state_bytes: Some(450_000),
        ..event(Stage::ChunkSent, 30, Some(10))
    };
    let drawn = draw(&[
        of("router", vec![event(Stage::RouterAccepted, 0, None)]),
        of("decode", vec![event(Stage::LastToken, 40, None)]),
        of("prefill", vec![sent]),
    ]);
    let lines: Vec<&str> = drawn.lines().collect();
    assert!(lines[1].contains("router") && lines[1].contains("0.00"));
    assert!(lines[2].contains("chunk sent · 30.00 MB, state 0.45 MB · 3.0 GB/s"));
    assert_eq!(
        lines[2].matches('█').count(),
        10,
        "a quarter of forty columns: {}",
        lines[2]
    );
    assert!(lines[3].contains("decode") && lines[3].contains("40.00"));
}

#[test]
fn nothing_recorded_is_said() {
    assert_eq!(draw(&[]), "no stage was recorded\n");
}
