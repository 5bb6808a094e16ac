//! Facts about delays between attempts.

use super::*;
use proptest::prelude::*;

fn backoff() -> Backoff {
    let (first, ceiling) = (Duration::from_millis(50), Duration::from_secs(1));
    Backoff::doubling(first, ceiling).factor(1.5).jitter(0.2)
}

#[test]
fn a_delay_grows_to_its_ceiling() {
    let middle = |attempt_idx| backoff().delay(attempt_idx).as_millis();
    assert_eq!((middle(0), middle(1), middle(2)), (50, 75, 112));
    assert_eq!(middle(u32::MAX), 1000);
}

#[test]
fn doubling_is_exact() {
    for (first_ms, ceiling_ms) in [(50, 1_000), (100, 1_000), (500, 30_000), (1_000, 60_000)] {
        let first = Duration::from_millis(first_ms);
        let ceiling = Duration::from_millis(ceiling_ms);
        let backoff = Backoff::doubling(first, ceiling);
        for attempt_idx in 0..32 {
            let doubled = first.saturating_mul(1 << attempt_idx.min(30));
            assert_eq!(backoff.delay(attempt_idx), doubled.min(ceiling));
        }
    }
}

proptest! {
    #[test]
    fn a_delay_stays_within_its_jitter(attempt_idx in 0u32..1000, draw in 0.0f64..1.0) {
        let middle = backoff().delay(attempt_idx).as_secs_f64();
        let delay = backoff().jittered(attempt_idx, draw).as_secs_f64();
        prop_assert!(delay >= middle * 0.8 - 1e-6 && delay <= middle * 1.2 + 1e-6);
    }

    #[test]
    fn delays_grow_between_first_and_ceiling(
        first_ms in 0u64..100_000,
        above_ms in 0u64..100_000,
        factor in 1.0f64..1000.0,
        attempt_idx: u32,
    ) {
        let first = Duration::from_millis(first_ms);
        let ceiling = Duration::from_millis(first_ms + above_ms);
        let backoff = Backoff::doubling(first, ceiling).factor(factor);
        let delay = backoff.delay(attempt_idx);
        prop_assert!(first <= delay && delay <= ceiling, "{delay:?}");
        prop_assert!(delay <= backoff.delay(attempt_idx.saturating_add(1)));
    }
}
