//! Facts about admission.

use super::*;

fn queue(concurrent_max: usize, waiting_max: usize) -> Queue {
    Queue::new(QueueConfig {
        concurrent_max: Some(concurrent_max),
        waiting_max,
        wait_max: Duration::from_secs(60),
    })
}

#[tokio::test(start_paused = true)]
async fn a_request_beyond_the_queue_is_refused_at_once() {
    let queue = queue(1, 0);
    let _place = queue.enter().await.unwrap();
    assert!(matches!(queue.enter().await, Err(QueueError::Full { .. })));
    assert_eq!(queue.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_place_given_back_goes_to_the_one_who_waits() {
    let queue = queue(1, 1);
    let place = queue.enter().await.unwrap();
    let (entered, ()) = tokio::join!(queue.enter(), async {
        assert_eq!(queue.waiting(), 1);
        drop(place);
    });
    assert!(entered.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_a_reason() {
    let queue = queue(1, 1);
    let _place = queue.enter().await.unwrap();
    let refused = queue.enter().await.unwrap_err();
    assert_eq!(refused, QueueError::TimedOut { waited_secs: 60 });
    assert_eq!(queue.waiting(), 0);
}
