//! Facts about health verdicts.

use super::*;

fn config() -> HealthConfig {
    HealthConfig {
        endpoint: PathAndQuery::from_static("/health"),
        interval: Duration::from_secs(5),
        timeout: Duration::from_secs(5),
        failures_to_unready: 3,
        successes_to_ready: 2,
        unready_interval_max: Duration::from_secs(1),
        startup_timeout: Duration::from_secs(60),
    }
}

fn changes(probes: &str) -> Vec<Change> {
    let mut verdict = Verdict::new();
    probes
        .chars()
        .map(|probe| verdict.settle(probe == '+', &config()))
        .filter(|change| *change != Change::None)
        .collect()
}

#[test]
fn the_first_success_makes_ready() {
    assert_eq!(changes("---+"), [Change::Ready]);
}

#[test]
fn misses_in_a_row_make_unready() {
    assert_eq!(changes("+--+--+"), [Change::Ready]);
    assert_eq!(changes("+---"), [Change::Ready, Change::Unready]);
}

#[test]
fn a_lost_worker_needs_several_successes() {
    assert_eq!(changes("+---+-+").len(), 2);
    assert_eq!(changes("+---++").len(), 3);
}

#[test]
fn an_unready_worker_is_probed_quickly_at_first() {
    let mut verdict = Verdict::new();
    let mut pauses = Vec::new();
    for _ in 0..6 {
        verdict.settle(false, &config());
        pauses.push(verdict.pause(&config()).as_millis());
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1000, 1000]);
}
