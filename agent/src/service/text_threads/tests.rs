//! What remains of a job whose caller is gone.

use super::*;
use futures_util::FutureExt;
use tokio::sync::oneshot;

fn free(threads: &TextThreads) -> usize {
    threads.budget.available_permits()
}

#[tokio::test]
async fn an_abandoned_job_is_cancelled_and_returns_its_bytes() {
    let threads = TextThreads::new();
    let (started_tx, started) = oneshot::channel();
    let job = threads.run(1000, |cancelled: &AtomicBool| {
        started_tx.send(()).unwrap();
        while !cancelled.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    });
    let mut job = Box::pin(job);
    tokio::select! {
        _ = &mut job => panic!("it ends only when it is abandoned"),
        begun = started => begun.unwrap(),
    }
    assert_eq!(free(&threads), BYTES_AT_ONCE as usize - 1000);
    drop(job);
    let all = threads.budget.acquire_many(BYTES_AT_ONCE).await;
    assert!(all.is_ok(), "the thread has ended its job");
}

#[tokio::test]
async fn a_job_that_waits_is_abandoned_without_being_run() {
    let threads = TextThreads::new();
    let held = threads.budget.acquire_many(BYTES_AT_ONCE).await.unwrap();
    let mut waiting = Box::pin(threads.run(1, |_| panic!("its caller is gone")));
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(waiting);
    drop(held);
    assert_eq!(free(&threads), BYTES_AT_ONCE as usize);
    assert_eq!(threads.run(1, |_| 5).await.unwrap(), 5);
}

#[tokio::test]
async fn a_text_beyond_the_budget_runs_alone() {
    let threads = TextThreads::new();
    let budget = Arc::clone(&threads.budget);
    let job = move |_: &AtomicBool| budget.available_permits();
    assert_eq!(threads.run(usize::MAX, job).await.unwrap(), 0);
}
