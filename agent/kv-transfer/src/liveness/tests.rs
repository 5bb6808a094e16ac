//! Facts about liveness, in paused time.

use super::*;
use tokio::io::duplex;

const INTERVAL: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn a_closed_connection_is_known_at_once() {
    let (ours, theirs) = duplex(64);
    drop(theirs);
    let started = tokio::time::Instant::now();
    let reason = watch("prefill", ours, INTERVAL, INTERVAL * 2).await;
    assert!(reason.message.contains("closed"), "{reason}");
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_lost_after_interval_times_failures() {
    let (ours, _theirs) = duplex(64);
    let started = tokio::time::Instant::now();
    let reason = watch("prefill", ours, INTERVAL, INTERVAL * 2).await;
    assert!(reason.message.contains("silent"), "{reason}");
    assert_eq!(started.elapsed(), INTERVAL * 2);
}

#[tokio::test(start_paused = true)]
async fn two_that_beat_keep_each_other() {
    let (ours, theirs) = duplex(64);
    let both = async {
        tokio::select! {
            reason = watch("a", ours, INTERVAL, INTERVAL * 2) => reason,
            reason = watch("b", theirs, INTERVAL, INTERVAL * 2) => reason,
        }
    };
    assert!(tokio::time::timeout(INTERVAL * 100, both).await.is_err());
}
