//! What is seen of a process from outside.

use super::*;

#[test]
fn a_process_whose_task_is_lost_has_ended() {
    let ready = State {
        phase: Phase::Ready,
        started: true,
        pid: Some(7),
        restarts: 2,
        reason: None,
    };
    let (state_tx, state) = watch::channel(ready.clone());
    let (intent, _intent_rx) = watch::channel(Intent::Run);
    let process = Process { state, intent };
    assert_eq!(process.state(), ready);
    drop(state_tx);
    let lost = process.state();
    assert_eq!(
        (lost.phase, lost.started, lost.pid),
        (Phase::Ended, false, None)
    );
}
