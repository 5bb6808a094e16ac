//! Facts about circuits.

use super::*;

const OPEN_FOR: Duration = Duration::from_secs(10);

fn circuit() -> Circuit {
    Circuit::new(CircuitConfig {
        enabled: true,
        failures_to_open: 3,
        successes_to_close: 2,
        open_for: OPEN_FOR,
        window: Duration::from_secs(60),
    })
}

fn fail(circuit: &mut Circuit, times: u32, now: Instant) {
    for _ in 0..times {
        let admission = circuit.begin(now).expect("admitted");
        circuit.fail(admission, now);
    }
}

#[tokio::test(start_paused = true)]
async fn failures_in_a_row_open_it() {
    let (mut circuit, now) = (circuit(), Instant::now());
    fail(&mut circuit, 2, now);
    let admission = circuit.begin(now).unwrap();
    circuit.succeed(admission);
    fail(&mut circuit, 2, now);
    assert!(circuit.admits(now));
    fail(&mut circuit, 1, now);
    assert!(!circuit.admits(now));
    assert!(circuit.begin(now).is_none());
}

#[tokio::test(start_paused = true)]
async fn failures_far_apart_are_not_in_a_row() {
    let (mut circuit, now) = (circuit(), Instant::now());
    fail(&mut circuit, 2, now);
    fail(&mut circuit, 2, now + Duration::from_secs(61));
    assert!(circuit.admits(now + Duration::from_secs(61)));
}

#[tokio::test(start_paused = true)]
async fn half_open_lets_one_probe_through_at_a_time() {
    let (mut circuit, now) = (circuit(), Instant::now());
    fail(&mut circuit, 3, now);
    let later = now + OPEN_FOR;
    let probe = circuit.begin(later).unwrap();
    assert!(circuit.begin(later).is_none());
    circuit.succeed(probe);
    assert!(circuit.is_open());
    let probe = circuit.begin(later).unwrap();
    circuit.succeed(probe);
    assert!(!circuit.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_opens_it_again() {
    let (mut circuit, now) = (circuit(), Instant::now());
    fail(&mut circuit, 3, now);
    let later = now + OPEN_FOR;
    fail(&mut circuit, 1, later);
    assert!(!circuit.admits(later + OPEN_FOR / 2));
    assert!(circuit.admits(later + OPEN_FOR));
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_probe_makes_way_for_the_next() {
    let (mut circuit, now) = (circuit(), Instant::now());
    fail(&mut circuit, 3, now);
    let later = now + OPEN_FOR;
    let probe = circuit.begin(later).unwrap();
    circuit.abandon(probe);
    assert!(circuit.begin(later).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_request_from_before_it_opened_does_not_close_it() {
    let (mut circuit, now) = (circuit(), Instant::now());
    let early = circuit.begin(now).unwrap();
    fail(&mut circuit, 3, now);
    circuit.succeed(early);
    assert!(circuit.is_open());
}
