//! Facts about thresholds.

use super::*;

fn mk_probe(failures: u32, successes: u32) -> ProbeSpec {
    ProbeSpec {
        target: ProbeTarget::Http(String::new()),
        initial_delay: Duration::ZERO,
        period: Duration::from_secs(1),
        timeout: Duration::from_secs(1),
        failures,
        successes,
    }
}

fn verdicts(spec: &ProbeSpec, answers: &[bool]) -> Vec<Option<bool>> {
    let mut streak = Streak::default();
    answers.iter().map(|ok| streak.answer(*ok, spec)).collect()
}

#[test]
fn one_failure_of_three_does_not_make_it_unready() {
    let found = verdicts(&mk_probe(3, 1), &[true, false, true, false, false, false]);
    let yes = Some(true);
    assert_eq!(found, vec![yes, yes, yes, yes, yes, Some(false)]);
}

#[test]
fn there_is_no_verdict_before_a_threshold_is_reached() {
    let found = verdicts(&mk_probe(2, 2), &[true, false, true, true]);
    assert_eq!(found, vec![None, None, None, Some(true)]);
}
