//! Facts about admission.

use super::limit::LimitError;
use super::*;
use futures_util::FutureExt;

fn queue(limit: &str, waiting_max: usize) -> Queue {
    Queue::new(QueueConfig {
        limit: limit.parse().unwrap(),
        waiting_max,
        wait_max: Duration::from_secs(60),
        no_worker_max: Duration::from_secs(10),
    })
}

#[test]
fn a_request_beyond_the_queue_is_refused() {
    let queue = queue("1", 1);
    let first = queue.count_waiting().unwrap();
    assert_eq!(
        queue.count_waiting().err(),
        Some(QueueError::Full { waiting: 1 })
    );
    assert_eq!(queue.waiting(), 1);
    drop(first);
    assert_eq!(queue.waiting(), 0);
}

#[tokio::test]
async fn a_permit_given_back_goes_to_the_one_who_waits() {
    let queue = queue("1", 1);
    let permit = queue.try_acquire().unwrap();
    let mut second = Box::pin(queue.acquire());
    assert!(second.as_mut().now_or_never().is_none());
    drop(permit);
    assert!(queue.try_acquire().is_none(), "it is promised");
    let _permit = second.await;
    assert_eq!(queue.in_flight(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_a_reason_and_is_counted_over_all_attempts() {
    let queue = queue("1", 1);
    let _permit = queue.try_acquire().unwrap();
    let mut budget = queue.budget();
    budget.for_worker(std::future::pending()).await;
    assert!(!budget.awaits_workers());
    let begun = tokio::time::Instant::now();
    let refused = budget.for_permit(queue.acquire()).await.unwrap_err();
    assert_eq!(refused, QueueError::TimedOut { waited_secs: 60 });
    assert_eq!(begun.elapsed(), Duration::from_secs(50));
}

#[test]
fn the_bound_follows_the_fleet() {
    let queue = queue("auto", 0);
    assert_eq!(queue.in_flight_max(), None);
    queue.resize(|| 2);
    assert_eq!(queue.in_flight_max(), Some(8));
    let held: Vec<AdmissionPermit> = std::iter::from_fn(|| queue.try_acquire()).collect();
    assert_eq!(held.len(), 8);
    queue.resize(|| 1);
    queue.resize(|| 2);
    assert!(queue.try_acquire().is_none(), "what was taken away is back");
    queue.resize(|| 1);
    drop(held);
    let held: Vec<AdmissionPermit> = std::iter::from_fn(|| queue.try_acquire()).collect();
    assert_eq!((held.len(), queue.in_flight()), (4, 4));
    queue.resize(|| 0);
    assert_eq!(queue.in_flight_max(), None);
    assert!(queue.try_acquire().is_some());
}

#[test]
fn a_limit_is_auto_a_number_or_none() {
    let bound = |limit: &str| limit.parse().map(|limit: ConcurrencyLimit| limit.bound(3));
    assert_eq!(bound("auto"), Ok(12));
    assert_eq!(bound("7"), Ok(7));
    assert_eq!(bound("-1"), Ok(UNBOUNDED));
    for wrong in ["0", "-2", "many", ""] {
        assert_eq!(bound(wrong), Err(LimitError), "{wrong}");
    }
}
