//! Facts about pauses between attempts.

use super::*;
use proptest::prelude::*;

fn config() -> RetryConfig {
    RetryConfig {
        retries_max: 5,
        backoff_first: Duration::from_millis(50),
        backoff_max: Duration::from_secs(1),
        multiplier: 1.5,
        jitter: 0.2,
    }
}

#[test]
fn a_pause_grows_to_its_bound() {
    let middle = |retry_idx| config().pause(retry_idx, 0.5).as_millis();
    assert_eq!((middle(0), middle(1), middle(2)), (50, 75, 112));
    assert_eq!(middle(u32::MAX), 1000);
}

proptest! {
    #[test]
    fn a_pause_stays_within_its_jitter(retry_idx in 0u32..1000, draw in 0.0f64..1.0) {
        let middle = config().pause(retry_idx, 0.5).as_secs_f64();
        let pause = config().pause(retry_idx, draw).as_secs_f64();
        prop_assert!(pause >= middle * 0.8 - 1e-6 && pause <= middle * 1.2 + 1e-6);
    }
}

#[test]
fn what_the_client_did_wrong_is_not_retried() {
    for status in [400u16, 401, 404, 413, 422, 501] {
        assert!(!is_retriable(http::StatusCode::from_u16(status).unwrap()));
    }
}
