//! Facts about shared attempts, in paused time.

use super::*;
use std::sync::atomic::{AtomicU32, Ordering};

fn mk_failure() -> FailureReason {
    FailureReason::network("gone")
}

fn mk_attempts<K, V>() -> SingleFlight<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    SingleFlight::new(Tasks::new(tokio::runtime::Handle::current()))
}

#[tokio::test(start_paused = true)]
async fn those_who_ask_together_share_one_attempt() {
    let attempts = mk_attempts();
    let runs = Arc::new(AtomicU32::new(0));
    let attempt = || {
        let runs = Arc::clone(&runs);
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(runs.fetch_add(1, Ordering::Relaxed))
        }
    };
    let both = tokio::join!(
        attempts.get("key", attempt()),
        attempts.get("key", attempt())
    );
    assert_eq!(both, (Ok(0), Ok(0)));
    assert_eq!(attempts.get("key", attempt()).await, Ok(0));
    attempts.forget(&"key");
    assert_eq!(attempts.get("key", attempt()).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_refused_at_once_for_a_while_and_then_tried_again() {
    let attempts: SingleFlight<&str, u32> = mk_attempts();
    assert!(
        attempts
            .get("key", async { Err(mk_failure()) })
            .await
            .is_err()
    );
    assert_eq!(
        attempts.get("key", async { Ok(1) }).await,
        Err(mk_failure())
    );
    tokio::time::advance(BACKOFF.delay(0)).await;
    assert_eq!(attempts.get("key", async { Ok(1) }).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn what_is_blacklisted_before_its_attempt_has_ended_is_not_kept() {
    let attempts: Arc<SingleFlight<&str, u32>> = Arc::new(mk_attempts());
    let lost = Arc::clone(&attempts);
    let made_and_lost = async move {
        lost.blacklist("key", mk_failure());
        Ok(1)
    };
    assert_eq!(attempts.get("key", made_and_lost).await, Ok(1));
    assert_eq!(
        attempts.get("key", async { Ok(2) }).await,
        Err(mk_failure())
    );
    tokio::time::advance(BACKOFF.delay(u32::MAX)).await;
    assert_eq!(attempts.get("key", async { Ok(2) }).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn what_is_blacklisted_recovers() {
    let attempts: SingleFlight<&str, u32> = mk_attempts();
    assert_eq!(attempts.get("key", async { Ok(1) }).await, Ok(1));
    attempts.blacklist("key", mk_failure());
    assert!(attempts.get("key", async { Ok(2) }).await.is_err());
    tokio::time::advance(BACKOFF.delay(u32::MAX)).await;
    let again = attempts.get("key", async { Err(mk_failure()) }).await;
    assert!(again.is_err());
    tokio::time::advance(BACKOFF.delay(u32::MAX)).await;
    assert_eq!(attempts.get("key", async { Ok(2) }).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_failure_without_callers_is_forgotten() {
    let attempts: SingleFlight<u32, u32> = mk_attempts();
    let fail = async |key| attempts.get(key, async { Err(mk_failure()) }).await;
    for key in 0..10 {
        assert!(fail(key).await.is_err());
    }
    assert_eq!(attempts.get(100, async { Ok(1) }).await, Ok(1));
    tokio::time::advance(BACKOFF.delay(u32::MAX) + FAILURE_KEPT).await;
    assert!(fail(10).await.is_err());
    let mut known: Vec<u32> = attempts.known.lock().keys().copied().collect();
    known.sort_unstable();
    assert_eq!(known, [10, 100]);
}

#[tokio::test(start_paused = true)]
async fn failures_are_bounded_and_the_first_goes_first() {
    let attempts: SingleFlight<usize, u32> = mk_attempts();
    assert_eq!(attempts.get(usize::MAX, async { Ok(1) }).await, Ok(1));
    for key in 0..FAILURES_MAX + 5 {
        tokio::time::advance(Duration::from_micros(1)).await;
        let failed = attempts.get(key, async { Err(mk_failure()) }).await;
        assert!(failed.is_err());
    }
    let known = attempts.known.lock();
    assert_eq!(known.len(), FAILURES_MAX + 1, "and what succeeded");
    assert!(known.contains_key(&usize::MAX) && known.contains_key(&(FAILURES_MAX + 4)));
    assert!(!known.contains_key(&4) && known.contains_key(&5));
}
